package gather_test

import (
	"context"
	"fmt"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/guard/gather"
	"github.com/holdfast-io/holdfast/memhold"
)

func Example() {
	ctx := context.Background()
	s := memhold.Open()
	defer s.Close()
	deploy, err := s.Mutex("main-branch", holdfast.Owner("deploy-7")).Acquire(ctx)
	if err != nil {
		panic(err)
	}
	g := gather.New(gather.Config{Space: s})
	c := guard.LockFree("main-branch")
	_, err = g.Wait(ctx, &c, gather.WaitOptions{Told: func(r guard.Result) {
		fmt.Println(r)
		if r.Outcome != guard.Passed {
			deploy.Release()
		}
	}})
	fmt.Println(err)
	// Output:
	// failed
	//   ✗ the lock "main-branch" is free (held by "deploy-7"): it is waited for until "deploy-7" releases it
	// passed
	//   ✓ the lock "main-branch" is free (free)
	// <nil>
}
