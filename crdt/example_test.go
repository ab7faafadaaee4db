package crdt_test

import (
	"fmt"

	"github.com/holdfast-io/holdfast/crdt"
)

func Example() {
	berlin, osaka := crdt.Actor{Node: "berlin", Incarnation: 1}, crdt.Actor{Node: "osaka", Incarnation: 1}
	var here, there crdt.GCounter
	first := here.Add(berlin, 2)
	second := here.Add(berlin, 1)
	there.Add(osaka, 4)

	there.Merge(second) // out of order,
	there.Merge(first)
	there.Merge(second) // and twice
	fmt.Println(there.Value())
	// Output: 7
}
