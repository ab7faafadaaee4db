package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/server"
)

// A session with many holds does not make the rows of others wide; programs are told all of them.
func TestSessions_ManyHolds(t *testing.T) {
	found := sessions{{1}: {ID: "a"}, {2}: {ID: "b", Holds: []string{"one"}}}
	for i := range 1000 {
		j := found[holdfast.SessionID{1}]
		j.Holds, j.Keys = append(j.Holds, fmt.Sprint("name", i)), append(j.Keys, fmt.Sprint("key", i))
	}
	for _, asJSON := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "out")
		out, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := (&app{out: out, errOut: out, json: asJSON}).printSessions(found); err != nil {
			t.Fatal(err)
		}
		text, _ := os.ReadFile(path)
		var all []sessionJSON
		switch {
		case asJSON && (json.Unmarshal(text, &all) != nil || len(all) != 2 || len(all[0].Holds) != 1000):
			t.Errorf("programs are told %s", text)
		case !asJSON && (len(text) > 1000 || !strings.Contains(string(text), "name0 name1 name2 name3 name4 and 995 more")):
			t.Errorf("people are told %d bytes: %.500s", len(text), text)
		}
		_ = out.Close()
	}
}

// A node that got another number asks nobody to start it.
func TestReplaced_GoesOn(t *testing.T) {
	text := goesOn(fmt.Errorf("node 2 had lost its directory and is node 4 now: %w", server.ErrReplaced)).Error()
	if text != "node 2 had lost its directory and is node 4 now: the group has let it in under that number, and it goes on by itself" {
		t.Errorf("it says %q", text)
	}
}

// What is full is not always a sequence.
func TestExhausted_Hint(t *testing.T) {
	if hint := failureOf(holdfast.ErrExhausted).hint; !strings.Contains(hint, "disk") || !strings.Contains(hint, "bound") {
		t.Errorf("the hint is %q", hint)
	}
}
