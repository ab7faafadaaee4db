package session

import (
	"bytes"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast/internal/core"
)

// own returns a copy of r that shares nothing with the message it was decoded
// from, which the shell may use again. Most results have no parts to copy.
func own(r *core.Result) core.Result {
	c := *r
	c.Text = strings.Clone(r.Text)
	c.Holders = slices.Clone(r.Holders)
	for i := range c.Holders {
		h := &c.Holders[i]
		h.Owner, h.Meta = strings.Clone(h.Owner), strings.Clone(h.Meta)
	}
	c.Keys = slices.Clone(r.Keys)
	for i := range c.Keys {
		c.Keys[i].Keys = slices.Clone(c.Keys[i].Keys)
		for j := range c.Keys[i].Keys {
			k := &c.Keys[i].Keys[j]
			k.Name, k.Value = strings.Clone(k.Name), bytes.Clone(k.Value)
		}
	}
	return c
}
