package manager_test

import (
	"context"
	"fmt"

	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/guard/manager"
	"github.com/holdfast-io/holdfast/memhold"
)

func Example() {
	ctx := context.Background()
	s := memhold.Open()
	defer s.Close()
	m, err := manager.New(manager.Config{Space: s})
	if err != nil {
		panic(err)
	}
	defer m.Close()
	_ = m.EnsureLock(manager.LockConfig{Name: "main-branch"})
	_, err = m.AcquireLock(ctx, "main-branch", "agent-7", "deploys")
	fmt.Println("agent-7:", err)
	_ = m.RegisterGuard(manager.Guard{ID: "merge", Condition: guard.LockFree("main-branch")})
	fmt.Println("released:", m.ReleaseLock(ctx, "main-branch", "agent-7"))
	r, err := m.WaitGuard(ctx, "merge")
	fmt.Println("merge:", r.Outcome, err)
	// Output:
	// agent-7: <nil>
	// released: <nil>
	// merge: passed <nil>
}
