package filehold

import (
	"context"
	"errors"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/convert"
	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/policy"
)

// user is a session of this process.
type user struct {
	e       *engine
	c       *client // nil: the engine's own
	id      core.SessionID
	session *driver.Session
	seq     uint64                   // of its last command; guarded by e.mu
	waits   map[uint64]*machineClaim // by number; guarded by e.mu

	mu    sync.Mutex
	locks map[*lock]struct{} // lock files held under it
	over  bool

	leaving atomic.Bool // its end in a directory that is gone is being said
}

// openUser opens a session. The store is locked, e.mu is held.
func (e *engine) openUser(c *client, spec driver.Spec) (*user, error) {
	u := &user{e: e, c: c, id: e.newSessionID(), waits: map[uint64]*machineClaim{}, locks: map[*lock]struct{}{}}
	u.session = driver.NewSession(driver.SessionID(u.id), spec)
	f := core.Frame{Session: u.id, Commands: []core.Command{{
		Op: core.OpOpen, TTL: int64(forever), Owner: spec.Owner, Meta: spec.Meta, Flags: core.Fleeting,
	}}}
	if err := e.writeEntry(&core.Entry{Frames: [][]byte{core.AppendFrame(nil, &f)}}); err != nil {
		return nil, err
	}
	if r := &e.out.Replies[0].Results[0]; r.Code != core.CodeOK {
		return nil, convert.Refusal(r.Code, r.Text)
	}
	e.users[u.id] = u
	return u, nil
}

func (u *user) endFrame() []byte {
	return core.AppendFrame(nil, &core.Frame{Session: u.id, Commands: []core.Command{{Op: core.OpEnd}}})
}

// open opens a session of the client.
func (c *client) open(ctx context.Context, spec driver.Spec) (u *user, err error) {
	if err := policy.None(&spec); err != nil {
		return nil, err
	}
	err = c.e.locked(ctx, func() error {
		u, err = c.e.openUser(c, spec)
		return err
	})
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.users[u] = struct{}{}
	return u, nil
}

// userFor is the session that a request hangs on.
func (c *client) userFor(ctx context.Context, r *driver.Request) (*user, error) {
	if r.Session != nil {
		return c.own(r.Session)
	}
	c.mu.Lock()
	u := c.shared[r.Spec]
	c.mu.Unlock()
	if u != nil && u.session.Err() != nil { // it ended with the directory, which may be back
		return nil, ended(u.session)
	}
	if u != nil {
		return u, nil
	}
	u, err := c.open(ctx, r.Spec)
	if err != nil {
		return nil, err
	}
	return c.share(ctx, u)
}

// share makes u the session of its spec, unless another was quicker.
func (c *client) share(ctx context.Context, u *user) (*user, error) {
	c.mu.Lock()
	first := c.shared[u.session.Spec]
	if first == nil {
		c.shared[u.session.Spec] = u
	}
	c.mu.Unlock()
	if first == nil {
		return u, nil
	}
	return first, u.finish(ctx)
}

// own is the user of a session that this client opened.
func (c *client) own(l *driver.Session) (*user, error) {
	c.e.mu.Lock()
	u := c.e.users[core.SessionID(l.ID)]
	c.e.mu.Unlock()
	if u == nil || u.c != c || l.Err() != nil {
		return nil, ended(l)
	}
	return u, nil
}

// ended says that a session is over.
func ended(l *driver.Session) error {
	e := &driver.Error{Kind: driver.ErrLost, Outcome: driver.NotDone}
	if e.Err = l.Err(); e.Err == nil {
		e.Err = errors.New("the session has ended, or is not of this Space")
	}
	return e
}

// finish ends a session as its owner asks, for the holders first. If the others cannot be
// told, that goes on in the background: nothing else ends a session of a living process.
func (u *user) finish(ctx context.Context) error {
	u.session.End(driver.ErrReleased)
	u.dropLocks()
	err := u.sayEnd(ctx)
	if err != nil {
		u.e.ref()
		go u.c.takeBack("end a session", u.session.Spec.Owner, u.sayEnd)
	}
	return unanswered(err)
}

// sayEnd writes the end of a session, once.
func (u *user) sayEnd(ctx context.Context) error {
	err := u.e.locked(ctx, func() error { return u.e.endUsers([]*user{u}) })
	if err == nil {
		u.c.mu.Lock()
		defer u.c.mu.Unlock()
		delete(u.c.users, u)
	}
	return err
}

// endUsers writes the end of those sessions that have not been ended. The store is locked,
// e.mu is held.
func (e *engine) endUsers(list []*user) error {
	var entry core.Entry
	for _, u := range list {
		if e.users[u.id] == u {
			entry.Frames = append(entry.Frames, u.endFrame())
		}
	}
	if len(entry.Frames) == 0 {
		return nil
	}
	if err := e.writeEntry(&entry); err != nil {
		return err
	}
	for _, u := range list {
		delete(e.users, u.id)
	}
	return nil
}

// OpenSession opens a session of its own. It lasts until it is ended or its
// process is: TTLs mean nothing here.
func (c *client) OpenSession(ctx context.Context, spec driver.Spec) (*driver.Session, error) {
	ctx, err := c.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer c.end()
	u, err := c.open(ctx, spec)
	if err != nil {
		return nil, err
	}
	return u.session, nil
}

// KeepSession has nothing to renew.
func (c *client) KeepSession(ctx context.Context, l *driver.Session, _ time.Duration) error {
	_, err := c.begin(ctx)
	if err != nil {
		return err
	}
	defer c.end()
	_, err = c.own(l)
	return err
}

// EndSession ends l with all that hangs on it.
func (c *client) EndSession(ctx context.Context, l *driver.Session) error {
	ctx, err := c.begin(ctx)
	if err != nil {
		return err
	}
	defer c.end()
	u, err := c.own(l)
	if err != nil {
		return err
	}
	return u.finish(ctx)
}

// SessionInfo tells what is known of a session, whichever process's it is.
func (c *client) SessionInfo(ctx context.Context, r *driver.SessionInfoRequest) (driver.SessionInfo, error) {
	ctx, err := c.begin(ctx)
	if err != nil {
		return driver.SessionInfo{}, err
	}
	defer c.end()
	id := r.ID
	l, err := c.e.known(ctx, id)
	if err != nil {
		return driver.SessionInfo{}, err
	}
	files, _, err := readSlots(c.e.liveFile(procOf(core.SessionID(id)), claimsExt), nil)
	if err != nil {
		return driver.SessionInfo{}, err
	}
	for _, s := range files {
		switch {
		case s.session != core.SessionID(id):
		case s.state == slotHolds:
			l.Names = append(l.Names, s.name)
		default:
			l.Waits = append(l.Waits, s.name)
		}
	}
	return l, nil
}

// known is what the machine knows of a session, all of it, in as many looks as that
// takes.
func (e *engine) known(ctx context.Context, id driver.SessionID) (driver.SessionInfo, error) {
	l := driver.SessionInfo{ID: id}
	var info core.SessionInfo
	for more := true; more; more = info.Next != (core.Cursor{}) {
		ok := false
		if err := e.look(ctx, func() { info, ok = e.m.SessionPage(core.SessionID(id), info.Next, 0) }); err != nil {
			return l, err
		}
		if !ok {
			return l, driver.Errorf("", id.String(), fs.ErrNotExist, "no such session: it has ended, or is of another directory")
		}
		l.Owner, l.Meta, l.Keys = info.Owner, info.Meta, append(l.Keys, info.Keys...)
		for i := range info.Claims {
			l.Names = append(l.Names, info.Claims[i].Name)
		}
		for i := range info.Waits {
			l.Waits = append(l.Waits, info.Waits[i].Name)
		}
	}
	return l, nil
}
