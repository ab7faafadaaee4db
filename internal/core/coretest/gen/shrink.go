package gen

import (
	"slices"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/core/coretest/twin"
)

// Shrink leaves out whatever can be left out: halves, quarters, … of the
// entries, then single renewals, frames and commands.
func Shrink(entries []twin.Entry, fails func([]twin.Entry) bool) []twin.Entry {
	entries = shorten(entries, fails)
	for i := range entries {
		with := func(e twin.Entry) []twin.Entry {
			all := slices.Clone(entries)
			all[i] = e
			return all
		}
		e := entries[i]
		e.Renewals = shorten(e.Renewals, func(r []core.Renewal) bool { e := e; e.Renewals = r; return fails(with(e)) })
		e.Frames = shorten(e.Frames, func(f []core.Frame) bool { e := e; e.Frames = f; return fails(with(e)) })
		e.Frames = slices.Clone(e.Frames)
		for j, f := range e.Frames {
			e.Frames[j].Commands = shorten(f.Commands, func(c []core.Command) bool {
				e := e
				e.Frames = slices.Clone(e.Frames)
				e.Frames[j].Commands = c
				return fails(with(e))
			})
		}
		entries = with(e)
	}
	return shorten(entries, fails)
}

// shorten drops pieces of a list as long as it still fails without them.
func shorten[T any](list []T, fails func([]T) bool) []T {
	for size := len(list); size > 0; size /= 2 {
		for at := 0; at < len(list); {
			without := slices.Concat(list[:at], list[min(at+size, len(list)):])
			if fails(without) {
				list = without
			} else {
				at += size
			}
		}
	}
	return list
}
