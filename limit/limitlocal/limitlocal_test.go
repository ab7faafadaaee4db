package limitlocal_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"strings"
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

// TestBadKeysAndCosts: they are refused, and nothing of them is remembered.
func TestBadKeysAndCosts(t *testing.T) {
	l, err := limitlocal.New(limit.Rate{Count: 5, Per: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Allow(t.Context(), strings.Repeat("k", 10<<20)); !errors.Is(err, fs.ErrInvalid) || len(err.Error()) > 300 {
		t.Errorf("a key of 10 MB: %v", err)
	}
	for _, cost := range []int64{-1, math.MinInt64, 6, math.MaxInt64} {
		if d, err := l.AllowN(t.Context(), "k", cost); err != nil || d.Allowed || d.RetryAfter != limit.Never {
			t.Errorf("a cost of %d: %+v, %v", cost, d, err)
		}
	}
	if n := l.Keys(); n != 0 {
		t.Errorf("%d keys are known", n)
	}
}
