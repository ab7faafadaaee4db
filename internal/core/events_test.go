package core_test

import (
	"os"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/internal/core"
)

// documented reads the pairs of kind and verb from the tables of docs/events.md.
func documented(t *testing.T) map[string]bool {
	text, err := os.ReadFile("../../docs/events.md")
	if err != nil {
		t.Fatal(err)
	}
	pairs := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) < 6 || !strings.HasPrefix(cells[1], " `") {
			continue
		}
		for kind := range strings.FieldsSeq(cells[2]) {
			pairs[kind+":"+strings.Trim(cells[1], " `")] = true
		}
	}
	return pairs
}

// docs/events.md lists every pair of kind and verb that the machine emits, and
// fields are filled as it says.
func TestEventsAreDocumented(t *testing.T) {
	pairs := documented(t)
	seen := map[string]bool{}
	for seed := range uint64(200) {
		l, m := newLoad(seed), core.New(core.Config{})
		var out core.Output
		for range 600 {
			out.Reset()
			l.next(m, &out)
			for i := range out.Events {
				e := &out.Events[i]
				name := e.Kind.String() + ":" + e.Verb.String()
				if seen[name] = true; !pairs[name] {
					t.Fatalf("%s is not in docs/events.md", name)
				}
				if why := wrongFields(e); why != "" {
					t.Fatalf("%s: %s: %+v", name, why, *e)
				}
			}
		}
	}
	for name := range pairs {
		if !seen[name] {
			t.Errorf("%s is documented, but never came up", name)
		}
	}
}

func wrongFields(e *core.Event) string {
	claim := e.Kind <= core.EventBarrier && e.Weight > 0
	switch {
	case e.Namespace == "" || (e.Kind == core.EventSession) != (e.Name == ""):
		return "namespace or name"
	case claim && (e.Verb == core.VerbQueued || e.Verb == core.VerbDenied) != (e.Token == 0):
		return "token"
	case e.Verb == core.VerbAcquired && e.Token != e.Revision:
		return "a grant's token is its revision"
	case e.Kind == core.EventKV && (e.Key.Name != e.Name || e.Session != e.Key.Session):
		return "key"
	}
	return ""
}

// Events come in order of (revision, ordinal), and no pair comes twice.
func TestEventOrder(t *testing.T) {
	l, m := newLoad(77), core.New(core.Config{})
	var rev uint64
	var ord uint32
	for range 3000 {
		var out core.Output
		l.next(m, &out)
		for _, e := range out.Events {
			next := e.Revision == rev && e.Ordinal == ord+1 || e.Revision > rev && e.Ordinal == 0
			if !next && rev != 0 {
				t.Fatalf("%d.%d after %d.%d", e.Revision, e.Ordinal, rev, ord)
			}
			rev, ord = e.Revision, e.Ordinal
		}
	}
}
