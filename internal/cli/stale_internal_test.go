package cli

import (
	"slices"
	"testing"

	"github.com/holdfast-io/holdfast"
)

// A list and the text about a name say that a holder is stale.
func TestStaleIsShown(t *testing.T) {
	r := holdfast.Resource{Name: "n", Holding: 1, Holders: []holdfast.Claim{{Owner: "h", Token: 2, Stale: true}}}
	if list := row(r); list[2] != "h (stale)" {
		t.Errorf("the list has %q", list)
	}
	if rows := claimRows(r); !slices.Contains(rows[0], "stale") {
		t.Errorf("the name has %q", rows)
	}
}
