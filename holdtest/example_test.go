package holdtest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/holdtest"
)

// worker is what is to be tested: it has to notice that its turn is over.
func worker(ctx context.Context, s *holdfast.Space, started chan<- *holdfast.Hold) error {
	return s.Mutex("jobs/nightly").Do(ctx, func(ctx context.Context, h *holdfast.Hold) error {
		started <- h
		<-ctx.Done() // work until told to stop
		return ctx.Err()
	})
}

func testWorker(t testing.TB) {
	s := holdtest.Space(t)
	started, result := make(chan *holdfast.Hold), make(chan error)
	go func() { result <- worker(context.Background(), s, started) }()
	holdtest.Lose(<-started, errors.New("the operator decided so"))
	fmt.Println(<-result)
}

func Example() {
	testWorker(&noTest{}) // in a test: t
	// Output: holdfast: hold "jobs/nightly": lost: the operator decided so
}

// noTest stands in for the *testing.T that an example does not have.
type noTest struct{ testing.TB }

func (*noTest) Helper()        {}
func (*noTest) Cleanup(func()) {}
