package gather

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A program that cannot be killed, as on a mount that is dead, is not started again beside it however often it is asked
// for; once it has ended it is. Others are run meanwhile.
func TestUnended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := unended{are: map[string]int{}}
		dead, starts := make(chan struct{}), atomic.Int32{}
		hangs := func(context.Context) (answer, error) {
			starts.Add(1)
			<-dead
			return answer{out: "late"}, nil
		}
		ask := func(what string, f func(context.Context) (answer, error)) (answer, error) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			return u.run(ctx, what, f)
		}
		began := time.Now()
		if _, err := ask("git in /dead", hangs); err == nil || !strings.Contains(err.Error(), "nor when it was killed") || time.Since(began) > 5*time.Second {
			t.Errorf("after %s %v", time.Since(began), err)
		}
		for range 10 {
			if _, err := ask("git in /dead", hangs); err == nil || !strings.Contains(err.Error(), "one before it was killed, and has not ended") {
				t.Error(err)
			}
		}
		well := func(context.Context) (answer, error) { return answer{out: "well"}, nil }
		if a, err := ask("git in /", well); err != nil || a.out != "well" {
			t.Errorf("another is %+v, %v", a, err)
		}
		close(dead)
		synctest.Wait()
		if a, err := ask("git in /dead", hangs); err != nil || a.out != "late" || starts.Load() != 2 {
			t.Errorf("%+v, %v after %d starts", a, err, starts.Load())
		}
	})
}

// Of what git says when it fails the cause is told, not the hint after it.
func TestReasonOf(t *testing.T) {
	for said, want := range map[string]string{
		"warning: x\nfatal: detected dubious ownership in repository at '/r'\nTo add an exception for this directory, call:\n\n\tgit config --global --add safe.directory /r\n": "fatal: detected dubious ownership in repository at '/r'",
		"warning: lazy fetching disabled; some objects may not be available\nfatal: unable to read 1\n":                                                                         "objects are missing, as in a partial clone, and a look fetches none; git fetch --refetch --no-filter gets them",
		"error: bad\n": "error: bad", "": "",
	} {
		if got := reasonOf(said); got != want {
			t.Errorf("%q: %q; want %q", said, got, want)
		}
	}
}
