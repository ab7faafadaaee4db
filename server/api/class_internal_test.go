package api

import (
	"maps"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

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
	for i := range routes {
		r := &routes[i]
		if gives := r.verb == "release" || r.verb == "renew" || r.verb == "resign"; gives != (r.class() == admission.Keep) &&
			r.kind != "leases" && r.verb != "downgrade" && r.verb != "hand-over" {
			t.Errorf("%s %s is of class %s", r.method, r.path(), r.class())
		}
	}
}

func TestGate(t *testing.T) {
	var g gate
	g.limit(8, 8)
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
	resume, err := g.rest()
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
