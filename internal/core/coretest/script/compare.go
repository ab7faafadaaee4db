package script

import (
	"fmt"
	"reflect"

	"github.com/holdfast-io/holdfast/internal/core/coretest/twin"
)

// Compare compares two outputs; only the wording of refusals is free.
func Compare(got, want twin.Output) error {
	Plain(&got)
	Plain(&want)
	if reflect.DeepEqual(got, want) {
		return nil
	}
	g, w := Print(got), Print(want)
	if g == w {
		g, w = fmt.Sprintf("%+v\n", got), fmt.Sprintf("%+v\n", want)
	}
	return fmt.Errorf("machine:\n%swant:\n%s", g, w)
}

// Plain takes away what may differ: texts, and empty instead of nil.
func Plain(out *twin.Output) {
	out.Replies, out.Renewed = orNil(out.Replies), orNil(out.Renewed)
	out.Pushes, out.Events = orNil(out.Pushes), orNil(out.Events)
	for i := range out.Replies {
		for j := range out.Replies[i].Results {
			r := &out.Replies[i].Results[j]
			r.Text, r.Holders, r.Keys = "", orNil(r.Holders), orNil(r.Keys)
			for k := range r.Keys {
				r.Keys[k].Keys = orNil(r.Keys[k].Keys)
			}
		}
	}
	for i := range out.Events {
		out.Events[i].Value = orNil(out.Events[i].Value)
	}
}

func orNil[S ~[]E, E any](s S) S {
	if len(s) == 0 {
		return nil
	}
	return s
}
