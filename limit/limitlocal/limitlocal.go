// Package limitlocal limits what happens in one process, for any number of keys: alone,
// or in place of a shared limiter that cannot be reached.
package limitlocal

import (
	"context"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/limit"
)

// Limiter decides by the clock of the process. Keys that are as if they had never been
// used are forgotten. Safe for concurrent use.
type Limiter struct {
	rate  limit.Rate
	start time.Time // its reading is that of the monotonic clock

	mu   sync.Mutex
	keys map[string]limit.State
	due  []string // keys in the order in which they will be looked at
}

// New returns a limiter, or what is wrong with the rate. Times are of the wall clock as
// it was at New, and of the monotonic clock since.
func New(rate limit.Rate) (*Limiter, error) {
	if err := rate.Check(); err != nil {
		return nil, err
	}
	return &Limiter{rate: rate, start: time.Now(), keys: map[string]limit.State{}}, nil
}

// Allow asks whether key may do one more, and takes it if so.
func (l *Limiter) Allow(ctx context.Context, key string) (limit.Decision, error) {
	return l.AllowN(ctx, key, 1)
}

// maxKey bounds a key, in bytes.
const maxKey = 4096

// AllowN is [Limiter.Allow] for a cost of n, all or nothing. The only error is that of a key
// of more than 4096 bytes.
func (l *Limiter) AllowN(_ context.Context, key string, n int64) (limit.Decision, error) {
	if len(key) > maxKey {
		return limit.Decision{}, fmt.Errorf("limitlocal: the key has %d bytes; at most %d are allowed: %w", len(key), maxKey, fs.ErrInvalid)
	}
	now := l.start.UnixNano() + int64(time.Since(l.start))
	l.mu.Lock()
	defer l.mu.Unlock()
	s, known := l.keys[key]
	s, d := limit.Take(l.rate, s, now, n)
	if !known && !limit.Idle(l.rate, s, now) {
		l.due = append(l.due, key)
		known = true
	}
	if known {
		l.keys[key] = s
	}
	l.tidy(now)
	return d, nil
}

// tidy looks at two keys, and forgets those that are as if never used: more than can be
// added at a time, so that there are never many.
func (l *Limiter) tidy(now int64) {
	for range min(2, len(l.due)) {
		key := l.due[0]
		l.due[0] = ""
		if l.due = l.due[1:]; limit.Idle(l.rate, l.keys[key], now) {
			delete(l.keys, key)
		} else {
			l.due = append(l.due, key)
		}
	}
}
