package holdfast

import (
	"context"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast/driver"
)

// Want is one part of an AcquireAll: what Want of a [Mutex], of the Reader
// or Writer of an [RWMutex] or of a [Semaphore] returns.
type Want struct {
	l    *lockable
	want driver.Want
	need Feature
	err  error
}

func (l *lockable) want(w driver.Want, need Feature, err error) Want {
	w.Name = l.name
	return Want{l: l, want: w, need: need, err: firstError(l.err, err)}
}

// AcquireAll takes all of wants or none, with one place in the queue where the
// backend can ("atomic-all"), else one after the other in order of name. The
// options are those of the Space, as set by [Space.With], of which the parts are made too:
// parts with others are refused.
func (s *Space) AcquireAll(ctx context.Context, wants ...Want) (*Hold, error) {
	return s.acquireAll(ctx, wants, false)
}

// TryAcquireAll is AcquireAll without a wait: ErrHeld if any is held.
func (s *Space) TryAcquireAll(ctx context.Context, wants ...Want) (*Hold, error) {
	return s.acquireAll(ctx, wants, true)
}

// DoAll runs f while holding all of wants; see [Mutex.Do].
func (s *Space) DoAll(ctx context.Context, wants []Want, f func(context.Context, *Hold) error) error {
	h, err := s.AcquireAll(ctx, wants...)
	return do(ctx, h, err, f)
}

// TryDoAll is DoAll without a wait.
func (s *Space) TryDoAll(ctx context.Context, wants []Want, f func(context.Context, *Hold) error) error {
	h, err := s.TryAcquireAll(ctx, wants...)
	return do(ctx, h, err, f)
}

func (s *Space) acquireAll(ctx context.Context, wants []Want, try bool) (*Hold, error) {
	names := namesOf(wants)
	if err := firstError(s.cfg.err, s.checkWants(wants)); err != nil {
		return nil, wrap("acquire", names, err)
	}
	w := &request{op: "acquire"}
	w.Try = try
	for _, want := range wants {
		w.Wants = append(w.Wants, want.want)
	}
	var need Feature
	if len(wants) > 1 {
		need = driver.FeatureAll
	}
	return s.obtain(ctx, names, s.cfg, need, w)
}

func namesOf(wants []Want) string {
	names := make([]string, len(wants))
	for i, w := range wants {
		names[i] = w.want.Name
	}
	return strings.Join(names, ", ")
}

// checkWants refuses sets that could not be held together.
func (s *Space) checkWants(wants []Want) error {
	if len(wants) == 0 {
		return invalid("nothing is wanted; give at least one name")
	}
	var seen []string
	for _, w := range wants {
		if err := s.checkWant(w); err != nil {
			return err
		}
		name := s.r.canonical(w.want.Name)
		if slices.Contains(seen, name) {
			return invalid("the name %q is wanted twice; it would wait for itself", w.want.Name)
		}
		seen = append(seen, name)
	}
	return nil
}

func (s *Space) checkWant(w Want) error {
	switch {
	case w.l == nil:
		return invalid("a Want is empty; make it with Mutex.Want and its like")
	case w.err != nil:
		return w.err
	case w.l.s.r != s.r:
		return invalid("the name %q is of another Space", w.want.Name)
	case !w.l.cfg.same(s.cfg):
		return invalid("the name %q has other options than the Space that is asked; give them to a Space, and make its parts of that: t := s.With(…); t.AcquireAll(ctx, t.Mutex(…).Want())", w.want.Name)
	case w.need != "":
		return s.r.lacks(w.need)
	}
	return nil
}

// same compares everything that would change a claim.
func (c *config) same(o *config) bool {
	return c == o || c.spec == o.spec && c.maxHold == o.maxHold && c.minHold == o.minHold &&
		c.delay == o.delay && c.reentrant == o.reentrant && c.under == o.under
}
