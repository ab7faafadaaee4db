//go:build unix

package redishold_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/internal/services"
	"github.com/holdfast-io/holdfast/limit"
)

// TestInitialKeysEndWithTheirRate: what keys with an Initial have used, which never ends by
// itself, goes with the rate that it was used at, and nothing else does.
func TestInitialKeysEndWithTheirRate(t *testing.T) {
	for _, keys := range []int{1, 3000} {
		t.Run(fmt.Sprint(keys), func(t *testing.T) {
			server := services.Redis(t)
			s, rc := open(t, server.URL()), admin(t, server.URL())
			left := func(pattern string) string {
				return do(t, rc, "EVAL", "return #redis.call('KEYS', ARGV[1])", "0", "*"+pattern+"*")
			}
			rate := limit.Rate{Count: 10, Per: time.Hour, Initial: 1}
			l, other := s.Limiter("l", rate), s.Limiter("other", rate)
			use := func(prefix string, keys int, allowed bool) {
				t.Helper()
				for i := range keys {
					if d, err := l.Allow(t.Context(), fmt.Sprint(prefix, i)); err != nil || d.Allowed != allowed {
						t.Fatal(prefix, i, d, err)
					}
				}
			}
			use("key ", keys, true)
			if d, err := other.Allow(t.Context(), "key 0"); err != nil || !d.Allowed {
				t.Fatal(d, err)
			}
			rate.Count = 20
			if err := l.SetRate(t.Context(), rate); err != nil {
				t.Fatal(err)
			}
			again := min(keys, 50) // used again while those of before are being removed
			use("key ", again, true)
			eventually(t, "what was used at the rate of before stays", func() bool {
				return left(":U:l\x00") == fmt.Sprint(again) && left("outdated") == "0"
			})
			use("key ", again, false)
			use("later ", keys, true)
			if err := l.Delete(t.Context()); err != nil {
				t.Fatal(err)
			}
			eventually(t, "what was used stays after Delete", func() bool { return left(":U:l\x00") == "0" && left("outdated") == "0" })
			if d, err := other.Allow(t.Context(), "key 0"); err != nil || d.Allowed || left(":I:") != "1" {
				t.Errorf("another limiter: %+v, %v; %s lists of keys are left, want 1", d, err, left(":I:"))
			}
		})
	}
}
