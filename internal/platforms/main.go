// Command platforms checks that every package, tests included, is right for other
// platforms than this one, without building anything: it parses and type-checks
// what go list names for each, which takes seconds where go vet would first have to
// compile all dependencies for every platform.
//
//	go run ./internal/platforms windows/amd64 darwin/arm64
//
// Tests that need a package which a platform does not have are left out there.
package main

import (
	"fmt"
	"os"
	"strings"
)

func main() {
	failed := false
	sources := newSources()
	for _, platform := range os.Args[1:] {
		goos, arch, ok := strings.Cut(platform, "/")
		if !ok {
			fmt.Fprintf(os.Stderr, "platforms: %q is not of the form windows/amd64\n", platform)
			os.Exit(2)
		}
		errs, err := check(sources, ".", goos, arch)
		if err != nil {
			fmt.Fprintln(os.Stderr, "platforms:", err)
			os.Exit(2)
		}
		for _, e := range errs {
			failed = true
			fmt.Printf("%s: %v\n", platform, e)
		}
	}
	if failed {
		os.Exit(1)
	}
}
