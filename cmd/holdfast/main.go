// Command holdfast takes turns from the shell: it runs commands under locks,
// counts, numbers, keeps keys, watches, and tells the holders of names, on any backend
// that has a URL. docs/cli.md shows how.
package main

import (
	"os"

	"github.com/holdfast-io/holdfast/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:])) }
