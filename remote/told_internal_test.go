package remote

import (
	"fmt"
	"slices"
	"testing"
)

// Of the nodes that were named, the newest are remembered, each once, and the endpoints always.
func TestToldNodesAreBounded(t *testing.T) {
	e := &engine{cfg: Config{Endpoints: []string{"a:1"}}}
	for i := range 100 {
		e.learn(fmt.Sprint("n", i, ":1"))
	}
	e.learn("n95:1")
	e.learn("a:1")
	want := []string{"a:1", "n92:1", "n93:1", "n94:1", "n96:1", "n97:1", "n98:1", "n99:1", "n95:1"}
	if got := e.nodes(nil); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := e.nodes(&serverLink{endpoint: "n99:1"}); slices.Contains(got, "n99:1") || len(got) != len(want)-1 {
		t.Errorf("without n99: %v", got)
	}
}
