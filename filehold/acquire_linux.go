package filehold

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/convert"
	"github.com/holdfast-io/holdfast/internal/core"
)

// hold is what an Acquire took: lock files and claims of the machine, in the
// order of their names.
type hold struct {
	c     *client
	parts []piece
	one   [1]piece // of most
	mu    sync.Mutex
	freed bool
	err   error // of the release
}

// piece is one name of a hold: a lock file or a claim.
type piece struct {
	lock  *lock
	claim *machineClaim
	token uint64
	want  int // which of the wants
}

var _ driver.Handle = (*hold)(nil)

// Acquire takes the wants one after the other, in order of name, so that nobody
// waits for each other in a circle.
func (c *client) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	ctx, err := c.beginAnywhere(ctx)
	if err != nil {
		return driver.Grant{}, err
	}
	defer c.end()
	u, err := c.userFor(ctx, r)
	if err != nil {
		return driver.Grant{}, err
	}
	h := &hold{c: c}
	h.parts = h.one[:0]
	for _, i := range byName(r.Wants) {
		p, err := c.takeOne(ctx, u, &r.Wants[i], r)
		if err != nil {
			return driver.Grant{}, h.giveUp(ctx, err)
		}
		p.want = i
		h.parts = append(h.parts, p)
	}
	return h.grant(u, len(r.Wants)), nil
}

// byName are the places of wants in order of name.
func byName(wants []driver.Want) []int {
	if len(wants) == 1 {
		return onlyOne
	}
	order := make([]int, len(wants))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(wants[a].Name, wants[b].Name) })
	return order
}

var onlyOne = []int{0}

func (c *client) takeOne(ctx context.Context, u *user, w *driver.Want, r *driver.Request) (piece, error) {
	if w.Kind == driver.Mutex || w.Kind == driver.RWMutex {
		k, err := c.takeLock(ctx, u, w, r)
		if err != nil {
			return piece{}, err
		}
		return piece{lock: k, token: k.token}, nil
	}
	if err := c.e.check(); err != nil {
		return piece{}, err
	}
	k, token, err := c.claim(ctx, u, w, r)
	return piece{claim: k, token: token}, err
}

// grant tells the tokens in the order of the wants.
func (h *hold) grant(u *user, n int) driver.Grant {
	g := driver.Grant{Session: u.session, Handle: h}
	if n == 1 {
		g.Token = driver.Token(h.parts[0].token)
		return g
	}
	g.Tokens = make([]driver.Token, n)
	for _, p := range h.parts {
		g.Tokens[p.want] = driver.Token(p.token)
		g.Token = max(g.Token, driver.Token(p.token))
	}
	return g
}

// giveUp undoes what was taken before err, which it returns as it is unless that
// fails too: then some of the names stay taken for a while.
func (h *hold) giveUp(ctx context.Context, err error) error {
	undone := h.undo(ctx)
	if undone == nil || errors.Is(undone, driver.ErrLost) {
		return err
	}
	return &driver.Error{Outcome: driver.Unknown, Err: errors.Join(err, undone)}
}

// undo gives back what was taken before something failed. If ctx ends, or that fails too,
// it goes on in the background.
func (h *hold) undo(ctx context.Context) error {
	if len(h.parts) == 0 {
		return nil
	}
	h.c.e.ref()
	over := make(chan error, 1)
	go h.c.takeBack("acquire", "", func(ctx context.Context) error {
		err := h.free(ctx)
		select {
		case over <- err:
		default:
		}
		return err
	})
	select {
	case err := <-over:
		return err
	case <-ctx.Done():
		return nil
	case <-closed(ctx):
		return nil
	}
}

// Release gives everything back. Close has done so for a closed client.
func (h *hold) Release(ctx context.Context) error {
	err := h.c.count()
	if err == nil {
		defer h.c.end()
		err = unanswered(h.free(call{ctx, h.c.gone}))
	}
	if errors.Is(err, driver.ErrClosed) && !errors.Is(err, driver.ErrUnavailable) { // by Close, not by a directory that was deleted
		return &driver.Error{Kind: driver.ErrLost, Outcome: driver.Done, Err: driver.ErrClosed}
	}
	return err
}

// unanswered makes an error of the file system one that says to try again: what was
// refused once may be done the next time, and until then the name stays held.
func unanswered(err error) error {
	if _, told := errors.AsType[*driver.Error](err); err == nil || told {
		return err
	}
	return &driver.Error{Kind: driver.ErrUnavailable, Outcome: driver.Unknown, RetryAfter: tryAgain, Err: err}
}

// free gives everything back, the last first.
func (h *hold) free(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for !h.freed {
		n := len(h.parts)
		if n == 0 {
			h.freed = true
			break
		}
		err := h.parts[n-1].release(ctx)
		if err != nil && !errors.Is(err, driver.ErrLost) {
			return err
		}
		h.parts = h.parts[:n-1]
		if h.err == nil {
			h.err = err
		}
	}
	return h.err
}

func (p *piece) release(ctx context.Context) error {
	if p.claim != nil {
		return p.claim.release(ctx)
	}
	if !p.lock.release(context.Background()) {
		return convert.Refusal(core.CodeLost, "")
	}
	return nil
}

// Change alters a leadership.
func (h *hold) Change(ctx context.Context, ch driver.Change) (driver.Grant, error) {
	ctx, err := h.c.begin(ctx)
	if err != nil {
		return driver.Grant{}, err
	}
	defer h.c.end()
	p := h.only()
	if p.claim == nil {
		return driver.Grant{}, errors.ErrUnsupported
	}
	k := p.claim
	o := &order{cmd: core.Command{Target: k.seq}}
	switch {
	case ch.Proclaim != nil:
		o.cmd.Op, o.cmd.Value = core.OpProclaim, *ch.Proclaim
	case ch.HandOver != "":
		o.cmd.Op, o.cmd.Owner = core.OpHandOver, ch.HandOver
	default:
		return driver.Grant{}, errors.ErrUnsupported
	}
	if err := k.u.submit(ctx, o, nil); err != nil {
		return driver.Grant{}, err
	}
	if o.result.Code != core.CodeOK {
		return driver.Grant{}, refusalOf(o)
	}
	if ch.HandOver != "" {
		k.forget() // nobody releases it any more
	}
	return driver.Grant{Token: driver.Token(p.token), Session: k.u.session, Handle: h}, nil
}

// only is the one piece of a hold; of several names, or of none any more, an empty one. It is not kept
// locked while it is changed: that may wait for the store's lock, and a Release must not wait for that.
func (h *hold) only() piece {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.parts) != 1 {
		return piece{}
	}
	return h.parts[0]
}
