package main

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"
)

// TestMain plays the other processes of the tour, too.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && !strings.HasPrefix(os.Args[1], "-test.") {
		main()
		return
	}
	os.Exit(m.Run())
}

// The tour ends by itself, in at most 25 lines, and says what it promises.
func TestTour(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout := os.Stdout
	os.Stdout = w
	err = tour(t.Context())
	os.Stdout = stdout
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(text, []byte("\n")); n > 25 {
		t.Errorf("%d lines", n)
	}
	for _, want := range []string{"holds the printer, token", "held by ann", "ann is killed; bob holds it", "stale"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the tour does not say %q:\n%s", want, text)
		}
	}
}
