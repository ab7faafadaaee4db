package drivertest

import (
	"context"
	"errors"
	"sync"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

// calls has calls of all sorts that are made over and over beside Close. What waits for ever
// tells that it does.
var calls = []struct {
	needs driver.Feature
	call  func(ctx context.Context, s *holdfast.Space, waits func()) error
}{
	{"", func(ctx context.Context, s *holdfast.Space, _ func()) error { return s.Ping(ctx) }},
	{"", func(ctx context.Context, s *holdfast.Space, waits func()) error {
		return second(s.Mutex("held", holdfast.OnWait(func(int) { waits() })).Acquire(ctx))
	}},
	{"", func(ctx context.Context, s *holdfast.Space, _ func()) error { return second(s.Inspect(ctx, "held")) }},
	{"", func(ctx context.Context, s *holdfast.Space, _ func()) error {
		h, err := s.Mutex("m").Acquire(ctx)
		_ = h.Release()
		return err
	}},
	{driver.FeatureElection, func(ctx context.Context, s *holdfast.Space, _ func()) error {
		l, err := s.Election("e").Campaign(ctx, nil)
		_ = l.Resign()
		return err
	}},
	{driver.FeatureKV, func(ctx context.Context, s *holdfast.Space, _ func()) error { return second(s.KV().Put(ctx, "k", nil)) }},
	{driver.FeatureKV, func(ctx context.Context, s *holdfast.Space, _ func()) error {
		for _, err := range s.KV().Range(ctx, "") {
			return err
		}
		return nil
	}},
	{driver.FeatureCounter, func(ctx context.Context, s *holdfast.Space, _ func()) error {
		return second(s.Counter("c").Add(ctx, 1))
	}},
	{driver.FeatureSession, func(ctx context.Context, s *holdfast.Space, _ func()) error {
		one, err := s.Session(ctx)
		if err == nil {
			_ = one.Revoke()
		}
		return err
	}},
}

func spaceCloseBesideCalls(ctx context.Context, e *Env) {
	holder := e.Client()
	e.take(holder.Mutex("held").Acquire(ctx))
	for range 3 {
		root := must(e.Open(ctx))
		ends := e.besideClose(ctx, root.Sub(e.Prefix()))
		done(root.Close())
		for _, end := range ends {
			err := second(end.wait(ctx, "a call beside Close"))
			refused(err, holdfast.ErrClosed, "a call beside Close")
			want(!errors.Is(err, context.Canceled), "a call with a context that goes on says that it was cancelled: %v", err)
		}
	}
}

// besideClose makes every call until it fails, and returns when each was made once or waits.
func (e *Env) besideClose(ctx context.Context, s *holdfast.Space) (ends []*background[struct{}]) {
	var begun sync.WaitGroup
	for _, c := range calls {
		if c.needs != "" && !e.Has(c.needs) {
			continue
		}
		begun.Add(1)
		once := sync.OnceFunc(begun.Done)
		ends = append(ends, later(func() (struct{}, error) {
			defer once()
			for {
				if err := c.call(ctx, s, once); err != nil {
					return struct{}{}, err
				}
				once()
			}
		}))
	}
	begun.Wait()
	return ends
}
