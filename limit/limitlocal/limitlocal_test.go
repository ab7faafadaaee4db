package limitlocal_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast/limit"
	"github.com/holdfast-io/holdfast/limit/limitlocal"
)

func Example() {
	l, err := limitlocal.New(limit.Rate{Count: 2, Per: time.Hour})
	if err != nil {
		panic(err)
	}
	for range 3 {
		d, _ := l.Allow(context.Background(), "user")
		fmt.Println(d.Allowed, d.Remaining)
	}
	// Output:
	// true 1
	// true 0
	// false 0
}

func TestBadRate(t *testing.T) {
	if _, err := limitlocal.New(limit.Rate{}); err == nil {
		t.Error("no rate is taken")
	}
}

// TestKeysAreForgotten: what was used and left is gone when others have come.
func TestKeysAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := limitlocal.New(limit.Rate{Count: 5, Per: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 10_000 {
			_, _ = l.Allow(t.Context(), fmt.Sprint(i))
		}
		if n := l.Keys(); n != 10_000 {
			t.Errorf("%d keys in use are known", n)
		}
		time.Sleep(2 * time.Second)
		for i := range 10_001 {
			_, _ = l.Allow(t.Context(), fmt.Sprint("new", i%10))
		}
		if n := l.Keys(); n > 20 {
			t.Errorf("%d keys are known; 10 are in use", n)
		}
		for i := range 100 { // refills
			time.Sleep(200 * time.Millisecond)
			if d, _ := l.Allow(t.Context(), "steady"); !d.Allowed {
				t.Fatalf("number %d at the rate is refused", i)
			}
		}
	})
}
