package server

import (
	"errors"
	"testing"

	"github.com/holdfast-io/holdfast/internal/convert"
	"github.com/holdfast-io/holdfast/internal/core"
)

// A refusal that comes through another node has the kind that the leader gave it.
func TestEveryKindIsPassedOn(t *testing.T) {
	for code := core.CodeOK; code < 64; code++ {
		kind := convert.Refusal(code, "").Kind
		if kind == nil {
			continue
		}
		r := reply{Refused: "no", Kind: kind.Error(), NotDone: true}
		if err := r.err(); !errors.Is(err, kind) {
			t.Errorf("code %d: %v is passed on as %v", code, kind, err)
		}
	}
}
