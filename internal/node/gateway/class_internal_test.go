package gateway

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/node/admission"
)

// Every call has its place in the order of an overload.
func TestEveryCallHasAClass(t *testing.T) {
	rest := maps.Clone(classes)
	protoregistry.GlobalFiles.RangeFilesByPackage("holdfast.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			s := f.Services().Get(i)
			for j := range s.Methods().Len() {
				name := "/" + string(s.FullName()) + "/" + string(s.Methods().Get(j).Name())
				if _, ok := rest[name]; !ok {
					t.Errorf("%s has no class", name)
				}
				delete(rest, name)
			}
		}
		return true
	})
	for name := range rest {
		t.Errorf("there is no %s", name)
	}
}

func TestGate(t *testing.T) {
	var g gate
	g.limit(8, 8, 8)
	var leaves []func()
	for g.work.Used < 6 {
		leave, err := g.enter(admission.Grant)
		if err != nil {
			t.Fatal(err)
		}
		leaves = append(leaves, leave)
	}
	if _, err := g.enter(admission.Grant); err == nil {
		t.Error("a seventh of six")
	}
	resume, err := g.rest(t.Context())
	if err != nil || g.work.Used != 5 || g.stay.Used != 1 {
		t.Fatalf("one waits: %v, %+v", err, &g)
	}
	leave, err := g.enter(admission.Grant)
	if err != nil {
		t.Errorf("who waits takes no place: %v", err)
	}
	resume()
	leave()
	for _, leave := range leaves {
		leave()
	}
	if g.work.Used != 0 || g.stay.Used != 0 {
		t.Errorf("all have left, and %+v", &g)
	}
}

// One connection has its share of the calls that stay, whatever they are, and a bit
// more for those that keep sessions; others are none the worse, and all is given back.
func TestGate_Connections(t *testing.T) {
	var g gate
	g.limit(1000, 1000, 3)
	on := func(conn int) context.Context {
		return context.WithValue(t.Context(), callerKey{}, caller{conn: conn})
	}
	one, other := on(1), on(2)
	var leaves []func()
	take := func(f func() (func(), error)) error {
		leave, err := f()
		if err == nil {
			leaves = append(leaves, leave)
		}
		return err
	}
	watch := func(ctx context.Context) func() (func(), error) {
		return func() (func(), error) { return g.settle(ctx, admission.List) }
	}
	wait := func() (func(), error) { return g.rest(one) }
	pass := func() (func(), error) {
		crowded, back := g.away(one, admission.Grant, true)
		if crowded == 0 {
			return back, nil
		}
		back()
		return g.rest(context.WithValue(t.Context(), callerKey{}, caller{crowded: crowded})) // at the leader
	}
	for _, f := range []func() (func(), error){watch(one), wait, pass} {
		if err := take(f); err != nil {
			t.Fatal(err)
		}
	}
	for i, f := range []func() (func(), error){watch(one), wait, pass} {
		if err := take(f); !errors.Is(err, driver.ErrExhausted) || !strings.Contains(err.Error(), "3 watches") || !strings.Contains(err.Error(), "--max-streams") {
			t.Errorf("call %d of a full connection: %v", i, err)
		}
	}
	for what, f := range map[string]func() (func(), error){
		"sessions": func() (func(), error) { return g.settle(one, admission.Keep) }, "another connection": watch(other), "no connection": watch(t.Context()),
		"a passing call": func() (func(), error) { _, back := g.away(one, admission.Grant, false); return back, nil },
	} {
		if err := take(f); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, leave := range leaves {
		leave()
	}
	if g.work.Used != 0 || g.stay.Used != 0 || len(g.conns) != 0 {
		t.Errorf("all have left, and %+v", &g)
	}
}
