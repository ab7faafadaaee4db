package drivertest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

// Env is what one case works with: clients of the store, and names that no
// other case uses. Everything that it opened is closed when the case ends.
type Env struct {
	*suite
	ctx    context.Context
	prefix string

	mu     sync.Mutex
	opened []*holdfast.Space
	kept   []*holdfast.Hold
}

// Root opens another client. Its names are the store's own: put Prefix before
// them.
func (e *Env) Root(opts ...holdfast.Option) *holdfast.Space {
	return e.keep(must(e.Open(e.ctx, opts...)))
}

// keep has s closed when the case ends.
func (e *Env) keep(s *holdfast.Space) *holdfast.Space {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.opened = append(e.opened, s)
	return s
}

// Client opens another client whose names are the case's own.
func (e *Env) Client(opts ...holdfast.Option) *holdfast.Space {
	return e.Root(opts...).Sub(e.prefix)
}

// take is must for a hold that lasts as long as the case: one that nobody keeps
// would be released as abandoned.
func (e *Env) take(h *holdfast.Hold, err error) *holdfast.Hold {
	done(err)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.kept = append(e.kept, h)
	return h
}

// Prefix is what every name of the case begins with.
func (e *Env) Prefix() string { return e.prefix }

// Info is what the backend declares.
func (e *Env) Info() driver.Info { return e.info }

// Has reports whether the backend declares f.
func (e *Env) Has(f driver.Feature) bool { return e.info.Features[f] }

// short is the TTL of sessions that are meant to be lost; backends without TTLs
// ignore it.
func (e *Env) short() holdfast.TTL { return holdfast.TTL(max(e.TTL, time.Second)) }

func (e *Env) close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	errs := make([]error, len(e.opened))
	var all sync.WaitGroup
	for i, s := range e.opened {
		all.Go(func() {
			errs[i] = caught(func() {
				if err := s.Close(); err != nil {
					fail("a client did not close: %w", err)
				}
			})
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// anew forgets what the case has done so far.
func (e *Env) anew() {
	_ = e.close()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.opened, e.kept = nil, nil
	e.prefix += "anew/"
}
