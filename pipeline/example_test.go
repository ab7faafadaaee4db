package pipeline_test

import (
	"fmt"

	"github.com/holdfast-io/holdfast/pipeline"
)

func Example() {
	q, err := pipeline.NewQueue(pipeline.Newest)
	if err != nil {
		fmt.Println(err)
		return
	}
	q.Join(pipeline.Run{ID: "build-1"})
	first, _ := q.Start()
	q.Join(pipeline.Run{ID: "build-2"})
	replaced, _ := q.Join(pipeline.Run{ID: "build-3"})
	fmt.Println("runs:", first.ID)
	fmt.Println("cancelled:", replaced[0].ID)
	q.Leave(first.ID)
	next, _ := q.Start()
	fmt.Println("next:", next.ID)
	// Output:
	// runs: build-1
	// cancelled: build-2
	// next: build-3
}
