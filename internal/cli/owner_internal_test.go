package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast"
)

// What a program says about itself cannot write to the terminal of another that looks: owners
// that come over the wire may have any bytes.
func TestOwnersAreHarmless(t *testing.T) {
	const owner = "ann\x1b]0;title\a\nforged\x9b"
	c := holdfast.Claim{Owner: owner}
	r := holdfast.Resource{Holders: []holdfast.Claim{c}, Waiters: []holdfast.Claim{c}}
	e := holdfast.Event{Owner: owner, Reason: owner}
	held := &holdfast.Error{Kind: holdfast.ErrHeld, Holders: r.Holders}
	for _, text := range append(slices.Concat(append(claimRows(r), row(r))...), eventText(e), held.Error()) {
		if strings.ContainsAny(text, "\x1b\a\n") || strings.Contains(text, "\x9b") {
			t.Errorf("%q is shown", text)
		}
	}
	for _, text := range []string{row(r)[2], claimRows(r)[0][1], eventText(e), held.Error()} {
		if !strings.Contains(text, `ann\x1b]0;title\a\nforged\x9b`) {
			t.Errorf("the owner is not in %q", text)
		}
	}
	if plain("ann/7/Überprüfung") != "ann/7/Überprüfung" {
		t.Error("letters are changed")
	}
}
