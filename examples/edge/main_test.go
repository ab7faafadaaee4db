package main

import (
	"bytes"
	"strings"
	"testing"
)

// TestDemo: the demo ends by itself, and says what it promises: the tenth is allowed, the
// eleventh denied, and nodes agree after each step.
func TestDemo(t *testing.T) {
	for _, live := range []bool{false, true} {
		var out bytes.Buffer
		if err := demo(t.Context(), &out, live); err != nil {
			t.Fatalf("%v:\n%s", err, out.String())
		}
		text := out.String()
		if allowed, denied, agree := strings.Count(text, "✓ allowed"), strings.Count(text, "✗ denied"), strings.Count(text, "all agree"); allowed != 10 || denied != 3 || agree != 5 {
			t.Errorf("%d allowed, %d denied, %d times agreed:\n%s", allowed, denied, agree, text)
		}
		_, tenth, _ := strings.Cut(text, "The tenth, on node 1:")
		if !strings.HasPrefix(tenth, "\n  node 1: ✓ allowed, 0 left\n") || !strings.Contains(tenth, "node 3 sees ██████████ 10") {
			t.Errorf("the tenth: %s", tenth)
		}
	}
}
