package holdfast

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/until"
)

// Session is an explicit one: holds and keys hang on it by [Under], and end
// with it. The library keeps it alive until Revoke, as it does holds; with
// [ManualRenew] its owner does by Keep, more often than its TTL. Safe for
// concurrent use.
type Session struct {
	r       *spaceState
	prefix  string
	session *driver.Session
	once    sync.Once
	result  error // of Revoke
	// holds are those that hang on it and last; under spaceState.mu.
	holds map[*holdState]struct{}
}

// Session opens a session of its own.
func (s *Space) Session(ctx context.Context, opts ...SessionOption) (*Session, error) {
	cfg := config{spec: s.cfg.spec, ttlSet: s.cfg.ttlSet, err: s.cfg.err}
	for o := range given(opts) {
		o.session(&cfg)
	}
	cfg.settle(s.r)
	if err := firstError(cfg.err, s.r.notDraining(), s.r.readyToHold(ctx, driver.FeatureSession, &cfg)); err != nil {
		return nil, wrap("open session", "", err)
	}
	session, err := s.r.d.OpenSession(ctx, cfg.spec)
	if err != nil {
		return nil, s.r.wrap(ctx, "open session", "", driver.FeatureSession, err)
	}
	return &Session{r: s.r, prefix: s.prefix, session: session}, nil
}

// ID names the session everywhere.
func (s *Session) ID() SessionID { return s.session.ID }

// Done is closed when the session is over.
func (s *Session) Done() <-chan struct{} { return s.session.Done() }

// Err is nil as long as the session lasts, as far as this program can know; it
// compares the clock. See [Hold.Err] about when it is late.
func (s *Session) Err() error {
	err := s.session.Err()
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrReleased):
		return &Error{Op: "session", Name: s.ID().String(), Kind: ErrReleased}
	}
	return &Error{Op: "session", Name: s.ID().String(), Kind: ErrLost, Err: reason(err)}
}

// over is Err for calls that need the session, which put their operation and name to it:
// nothing was sent, and another session is needed.
func (s *Session) over() error {
	err := s.session.Err()
	if err == nil {
		return nil
	}
	kind, why := ErrLost, reason(err)
	if errors.Is(err, ErrReleased) {
		kind, why = ErrReleased, errors.New("it was revoked here")
	}
	if why == nil {
		why = err
	}
	return &Error{Kind: kind, Outcome: driver.NotDone, Err: fmt.Errorf("session %s is over: %w; open another with Space.Session", s.ID(), why)}
}

// Deadline is when the session ends unless it is kept; false: it has none.
func (s *Session) Deadline() (time.Time, bool) { return s.session.Deadline() }

// Keep keeps the session for another TTL from now.
func (s *Session) Keep(ctx context.Context) error {
	if err := firstError(s.over(), s.r.ready(ctx, "")); err != nil {
		return wrap("keep session", s.ID().String(), err)
	}
	return s.r.wrap(ctx, "keep session", s.ID().String(), driver.FeatureSession, s.r.d.KeepSession(ctx, s.session, 0))
}

// Info tells what the backend knows of the session: what it holds, what it waits
// for, its keys; each once and in order. More than a thousand are read page by page:
// of what changes meanwhile some may be missing.
func (s *Session) Info(ctx context.Context) (SessionInfo, error) {
	whole, r := SessionInfo{}, driver.SessionInfoRequest{ID: s.session.ID}
	for more := true; more; more = r.After != "" {
		page, err := s.page(ctx, &r)
		if err != nil {
			return page, err
		}
		for i, to := range []*[]string{&page.Names, &page.Waits, &page.Keys} {
			*to = append([][]string{whole.Names, whole.Waits, whole.Keys}[i], *to...)
		}
		whole, r.After = page, page.Next
	}
	for _, names := range []*[]string{&whole.Names, &whole.Waits, &whole.Keys} {
		slices.Sort(*names)
		*names = slices.Compact(*names)
	}
	return whole, nil
}

// page is a part of Info.
func (s *Session) page(ctx context.Context, r *driver.SessionInfoRequest) (SessionInfo, error) {
	if err := s.r.ready(ctx, ""); err != nil {
		return SessionInfo{}, wrap("session info", s.ID().String(), err)
	}
	info, err := s.r.d.SessionInfo(ctx, r)
	for _, names := range [][]string{info.Names, info.Waits, info.Keys} {
		for i, name := range names {
			names[i] = trim(name, s.prefix)
		}
	}
	return info, s.r.wrap(ctx, "session info", s.ID().String(), driver.FeatureSession, err)
}

// TimeToLive is what the backend's own clock leaves to the session.
func (s *Session) TimeToLive(ctx context.Context) (time.Duration, error) {
	info, err := s.page(ctx, &driver.SessionInfoRequest{ID: s.session.ID, Max: 1})
	return info.ExpiresIn, err
}

// Keys are the keys that end with the session.
func (s *Session) Keys(ctx context.Context) ([]string, error) {
	info, err := s.Info(ctx)
	return info.Keys, err
}

// Revoke ends the session with everything on it, for the holders here first. Of more
// than 10,000 holds and keys a server has ended the first when Revoke returns; the others
// follow by themselves, 10,000 at a time. It
// takes no context and blocks as [Hold.Release] does; if the backend cannot be
// told, the session ends there after its TTL. A second call returns the first
// result; on a nil Session it does nothing.
func (s *Session) Revoke() error {
	if s == nil {
		return nil
	}
	s.once.Do(s.revoke)
	return s.result
}

func (s *Session) revoke() {
	if err := s.over(); err != nil {
		s.result = wrap("revoke", s.ID().String(), err)
		return
	}
	for _, c := range s.r.holdsUnder(s) {
		c.lost(errRevoked)
	}
	ctx := until.In(s.patience())
	defer ctx.Stop()
	err := s.r.d.EndSession(ctx, s.session)
	s.session.End(ErrReleased)
	s.result = s.r.wrap(ctx, "revoke", s.ID().String(), driver.FeatureSession, err)
}

var errRevoked = errors.New("its session was revoked here")

func (s *Session) patience() time.Duration {
	d, ok := s.Deadline()
	if !ok {
		return patience
	}
	return min(patience, max(driver.Until(d), 0))
}

// askByHand sends a request on a session of its own that nobody renews once it is
// granted.
func (s *Space) askByHand(ctx context.Context, c *holdState, w *request) (*Hold, error) {
	session, err := s.r.d.OpenSession(ctx, c.cfg.spec)
	if err != nil {
		return nil, err
	}
	w.Session = session
	g, err := s.requestKept(ctx, c, w)
	if err != nil {
		return nil, err
	}
	return s.startFull(ctx, c, g, w)
}

// requestKept keeps the session of a request until it is answered, and ends it if nothing was granted.
func (s *Space) requestKept(ctx context.Context, c *holdState, w *request) (g driver.Grant, err error) {
	keeper := s.r.keepWhileWaiting(w.Session)
	err = errLeft // unless it is answered
	defer func() {
		keeper.stop()
		if err != nil {
			s.r.spawn(func() { s.r.endSession(w.Session) })
		}
	}()
	return c.request(ctx, w)
}

// startFull begins the hold with most of its TTL ahead: what the wait took is
// not the holder's.
func (s *Space) startFull(ctx context.Context, c *holdState, g driver.Grant, w *request) (*Hold, error) {
	d, ok := w.Session.Deadline()
	passed := w.one[0].Kind == driver.Latch || w.one[0].Kind == driver.Barrier // and needs no time
	if ok && !passed && driver.Until(d) < c.cfg.spec.TTL*3/4 {
		if err := s.r.d.KeepSession(ctx, w.Session, 0); err != nil {
			s.r.spawn(func() { s.r.endSession(w.Session) })
			return nil, err
		}
	}
	return c.begin(g, w.Lost)
}

// endSession gives back a session that serves nobody. If it fails, the session
// ends by its TTL.
func (r *spaceState) endSession(l *driver.Session) {
	ctx, cancel := context.WithTimeout(r.life, patience)
	defer cancel()
	_ = r.d.EndSession(ctx, l)
	l.End(ErrReleased)
}

// keeper renews a session that waits for its grant.
type keeper struct {
	r       *spaceState
	session *driver.Session

	mu      sync.Mutex
	timer   *time.Timer
	stopped bool
}

func (r *spaceState) keepWhileWaiting(l *driver.Session) *keeper {
	k := &keeper{r: r, session: l}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.timer = time.AfterFunc(l.Spec.TTL/3, k.keep)
	return k
}

func (k *keeper) keep() {
	k.r.spawn(func() {
		ctx, cancel := context.WithTimeout(k.r.life, k.session.Spec.TTL/3)
		defer cancel()
		if err := k.r.d.KeepSession(ctx, k.session, 0); err != nil {
			k.r.fault("keep session", k.session.ID.String(), err)
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		if !k.stopped {
			k.timer.Reset(k.session.Spec.TTL / 3)
		}
	})
}

func (k *keeper) stop() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stopped = true
	k.timer.Stop()
}
