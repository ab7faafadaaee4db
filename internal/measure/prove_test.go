package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestProofsAreThere: every proof names a package of ours that has its tests and flags.
func TestProofsAreThere(t *testing.T) {
	for _, p := range proofs {
		args := strings.Fields(p.args)
		dir := "../../" + args[0]
		source := ""
		files, err := os.ReadDir(dir)
		if err != nil {
			t.Errorf("%s: %v", p.title, err)
			continue
		}
		for _, f := range files {
			if strings.HasSuffix(f.Name(), "_test.go") {
				text, err := os.ReadFile(dir + "/" + f.Name())
				if err != nil {
					t.Fatal(err)
				}
				source += string(text)
			}
		}
		for _, word := range regexp.MustCompile(`Test\w+|[a-z]+\.[a-z]+`).FindAllString(strings.Join(args[1:], " "), -1) {
			if !strings.Contains(source, word) {
				t.Errorf("%s: %s has no %s", p.title, args[0], word)
			}
		}
	}
}
