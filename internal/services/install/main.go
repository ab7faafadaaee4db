//go:build unix

// Command install puts the server programs on the machine that the backend
// tests need (Redis, PostgreSQL, PgBouncer). Where it may not install, it says
// what is missing and exits with status 1.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/holdfast-io/holdfast/internal/services/programs"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if !install(ctx, os.Stdout, os.Stderr) {
		os.Exit(1)
	}
}

// install reports whether the tests have all they need afterwards.
func install(ctx context.Context, out, errs io.Writer) bool {
	needed := needed()
	if programs.CanInstall() {
		if err := programs.Debian().Install(ctx, needed...); err != nil {
			fmt.Fprintln(errs, err)
		}
	}
	complete := true
	for _, p := range needed {
		path, err := p.Find()
		if err != nil {
			fmt.Fprintln(errs, err)
			complete = false
			continue
		}
		fmt.Fprintf(out, "%-13s %s\n", p.Package, path)
	}
	return complete
}

// needed leaves out the programs with a variable that names a running server.
func needed() []programs.Program {
	return slices.DeleteFunc(programs.All(), func(p programs.Program) bool {
		return p.Variable != "" && os.Getenv(p.Variable) != ""
	})
}
