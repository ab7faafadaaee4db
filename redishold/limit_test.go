//go:build unix

package redishold_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/services"
	"github.com/holdfast-io/holdfast/limit"
	"github.com/holdfast-io/holdfast/redishold"
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

// TestLimitClockSetBack: a key that was used when the server's clock was far ahead is closed for a window, not until then.
func TestLimitClockSetBack(t *testing.T) {
	server := services.Redis(t)
	s, rc := open(t, server.URL()), admin(t, server.URL())
	for _, a := range []limit.Algorithm{limit.FixedWindow, limit.SlidingWindow, limit.SlidingLog} {
		l := s.Limiter(a.String(), limit.Rate{Count: 3, Per: time.Second, Algorithm: a})
		if _, err := l.AllowN(t.Context(), "k", 3); err != nil {
			t.Fatal(err)
		}
		do(t, rc, "EVAL", `local k = redis.call('KEYS', '*:U:' .. ARGV[1] .. '\0k')[1]
			local ahead = string.gsub(redis.call('GET', k), '"at":(%d+)', function(at) return '"at":4' .. string.sub(at, 2) end)
			redis.call('SET', k, ahead)
			return ahead`, "0", a.String()) // with a 4 for its first digit the time is after 2100
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if d, err := l.Peek(ctx, "k", 1); err != nil || d.Allowed {
			t.Errorf("%s: %+v, %v", a, d, err)
		}
		if err := l.WaitN(ctx, "k", 3); err != nil {
			t.Errorf("%s: %v", a, err)
		}
	}
}

const earlier = "Allow after an earlier program"

// TestLimitKeysEnd: what a key of a bucket has used stays until two seconds after the second in which it is full,
// whatever changed it last, also if an earlier program did, and no longer.
func TestLimitKeysEnd(t *testing.T) {
	server := services.Redis(t)
	s, rc := open(t, server.URL()), admin(t, server.URL())
	rate := limit.Rate{Count: 1 << 30, Per: time.Second, Burst: 1 << 40}
	l := s.Limiter("l", rate)
	ctx := t.Context()
	ends := func(what string) {
		t.Helper()
		// The time is asked for last: what passes in between is added, not taken off.
		left := do(t, rc, "EVAL", `local U = redis.call('KEYS', '*:U:l*')[1]
			if not U then return 'gone' end
			local full, stays = string.match(redis.call('GET', U), '^%x+ (%d+)'), redis.call('PTTL', U)
			local T = redis.call('TIME')
			return string.format('%.0f', T[1] * 1000 + math.floor(T[2] / 1000) + stays - full * 1000)`, "0")
		if left == "gone" && what == earlier {
			return // the machine took its time
		}
		if ms, err := strconv.Atoi(left); err != nil || ms < 1999 || ms > 12_000 { // what a call takes may be added
			t.Errorf("%s: it ends %s ms after the second in which it is full", what, left)
		}
	}
	allow := func() {
		t.Helper()
		if d, err := l.Allow(ctx, "k"); err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
	}
	reserve := func(n, actual int64) {
		t.Helper()
		r, err := l.Reserve(ctx, "k", n)
		if err != nil || r.Settle(ctx, actual) != nil {
			t.Fatal(err)
		}
	}
	if d, err := l.AllowN(ctx, "k", rate.Burst/2); err != nil || !d.Allowed { // it is full in 512 s
		t.Fatal(d, err)
	}
	for range 50 {
		allow()
		ends("Allow")
		reserve(2, 1)
		ends("Settle")
		allow()
		ends("Allow after Settle")
		reserve(1, 1<<22)
		ends("Settle of a debt")
		reserve(2, 0)
		ends("Cancel")
		if err := l.WaitN(ctx, "k", 5); err != nil {
			t.Fatal(err)
		}
		ends("Wait")
	}
	key := do(t, rc, "EVAL", `return redis.call('KEYS', '*:U:l*')[1]`, "0")
	for range 10 {
		do(t, rc, "EVAL", `local epoch = string.sub(redis.call('GET', redis.call('KEYS', '*:L:l')[1]), 1, 32)
			return redis.call('SET', ARGV[1], epoch .. ' ' .. redis.call('TIME')[1] .. ' 0 0 0 0 0 0', 'PX', 500)`, "0", key)
		allow()
		ends(earlier)
	}
}

// meddler is a client with something that happens before each swap of what a key has used.
type meddler struct {
	plain
	before func()
}

func (m meddler) Do(ctx context.Context, commands ...[]string) []redishold.Reply {
	for _, words := range commands {
		if slices.Contains(words, "swap") {
			m.before()
		}
	}
	return m.plain.Do(ctx, commands...)
}

// TestLimitDeletedMeanwhile: a limiter that is deleted, or gets another rate, while a program decides about one of its keys is
// as that leaves it.
func TestLimitDeletedMeanwhile(t *testing.T) {
	server := services.Redis(t)
	hears := make(chan struct{})
	close(hears)
	other, rate := open(t, server.URL()), limit.Rate{Count: 5, Per: time.Hour, Algorithm: limit.FixedWindow}
	for name, before := range map[string]func(*holdfast.Limiter) error{
		"delete": func(l *holdfast.Limiter) error { return l.Delete(t.Context()) },
		"rate": func(l *holdfast.Limiter) error {
			return l.SetRate(t.Context(), limit.Rate{Count: 7, Per: time.Hour, Algorithm: limit.FixedWindow})
		},
	} {
		for _, used := range []int64{0, 1} {
			t.Run(fmt.Sprint(name, " ", used), func(t *testing.T) {
				l := other.Limiter(t.Name(), rate)
				d, err := redishold.NewWith(meddler{plain{admin(t, server.URL()), hears}, func() {
					if err := before(l); err != nil {
						t.Error(err)
					}
				}}, nil)
				if err != nil {
					t.Fatal(err)
				}
				s, err := holdfast.New(d)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = s.Close() })
				if _, err := l.AllowN(t.Context(), "k", used); err != nil {
					t.Fatal(err)
				}
				if _, err := s.Limiter(t.Name(), rate).Allow(t.Context(), "k"); err != nil {
					t.Errorf("the decision: %v", err)
				}
				if _, err := other.Limiter(t.Name(), limit.Rate{}).Allow(t.Context(), "k"); errors.Is(err, holdfast.ErrNotFound) != (name == "delete") {
					t.Errorf("then: %v", err)
				}
				if name == "rate" {
					return
				}
				if d, err := l.Allow(t.Context(), "k"); err != nil || d.Remaining != 4 {
					t.Errorf("made again: %+v, %v", d, err)
				}
			})
		}
	}
}
