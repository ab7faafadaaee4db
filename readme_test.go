package holdfast_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast"
)

// takeTurns is the README's example.
func takeTurns(ctx context.Context, work func(context.Context, holdfast.Token) error) error {
	s, err := holdfast.Open(ctx, "mem:") // or file:, postgres:, redis:, nats:
	if err != nil {
		return err
	}
	defer s.Close()

	hold, err := s.Mutex("jobs/nightly").Acquire(ctx) // ctx bounds the wait only
	if err != nil {
		return err
	}
	defer hold.Release()
	return work(hold.Bind(ctx), hold.Token()) // the context ends with the hold
}

func Example_readme() {
	err := takeTurns(context.Background(), func(ctx context.Context, t holdfast.Token) error {
		fmt.Println("working with a token:", t > 0, ctx.Err())
		return nil
	})
	fmt.Println(err)
	// Output:
	// working with a token: true <nil>
	// <nil>
}

// The code in the README is the code above.
func TestReadmeIsAnExample(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("readme_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(readme), "```go\n")
	code, _, ok2 := strings.Cut(rest, "```")
	if !ok || !ok2 {
		t.Fatal("the README has no Go code")
	}
	flat := strings.ReplaceAll(string(source), "\n\t", "\n")
	if !strings.Contains(flat, strings.TrimSpace(code)) {
		t.Errorf("the README's code is not that of takeTurns:\n%s", code)
	}
}
