package natshold

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/holdfast-io/holdfast/driver"
)

const (
	// patience is how long one request may take.
	patience = 2 * time.Second
	// A link that says nothing is taken for broken after two pings.
	pingEvery = 2 * time.Second
	// comeBack is the pause between two attempts to connect again.
	comeBack = 100 * time.Millisecond
	// blip is how long a request waits for a link that was broken.
	blip = 500 * time.Millisecond
)

var errNoAnswer = fmt.Errorf("no answer from NATS within %s", patience)

// link is a connection with what was asked over it and not answered yet.
type natsConn struct {
	nc *nats.Conn

	mu    sync.Mutex
	calls map[*call]struct{}
}

// call is a request on its way.
type call struct {
	subject string // what it is sent to begins with this
	refuse  context.CancelCauseFunc
}

// dial connects to one of the addresses. It goes on connecting for ever when the
// link breaks later; nothing is kept to be sent when it is back.
func dial(ctx context.Context, user *url.Userinfo, addrs []string) (*natsConn, error) {
	if err := ctx.Err(); err != nil {
		return nil, &driver.Error{Op: "open", Kind: err, Outcome: driver.NotDone}
	}
	l := &natsConn{calls: map[*call]struct{}{}}
	wait := patience
	if at, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(at))
	}
	opts := []nats.Option{
		nats.Name("holdfast"), nats.Timeout(wait), nats.MaxReconnects(-1), nats.ReconnectWait(comeBack), nats.ReconnectJitter(comeBack, comeBack),
		nats.ReconnectBufSize(-1), nats.PingInterval(pingEvery), nats.MaxPingsOutstanding(2), nats.IgnoreAuthErrorAbort(),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { l.refused(err) }),
	}
	if password, ok := user.Password(); ok {
		opts = append(opts, nats.UserInfo(user.Username(), password))
	} else if user.Username() != "" {
		opts = append(opts, nats.Token(user.Username()))
	}
	nc, err := nats.Connect(strings.Join(addrs, ","), opts...)
	if err != nil {
		return nil, unconnected(ctx, err)
	}
	l.nc = nc
	return l, nil
}

// unconnected is the error of Open.
func unconnected(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthExpired) || errors.Is(err, nats.ErrAuthRevoked):
		return driver.Errorf("open", "", fs.ErrPermission, "NATS refuses the user, password or token: %w", err)
	case ctx.Err() != nil:
		return &driver.Error{Op: "open", Kind: ctx.Err(), Outcome: driver.NotDone, Err: err}
	}
	if at, ok := ctx.Deadline(); ok && !time.Now().Before(at) {
		// What the deadline bounds can end a moment before the context.
		return &driver.Error{Op: "open", Kind: context.DeadlineExceeded, Outcome: driver.NotDone, Err: err}
	}
	e := driver.Errorf("open", "", driver.ErrUnavailable, "no connection: %w; see that the server runs and the address is right", err)
	e.RetryAfter = comeBack
	return e
}

// refused ends the calls that an error of the connection is about: the server
// does not answer what its user has no right to.
func (l *natsConn) refused(err error) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return
	}
	_, rest, _ := strings.Cut(err.Error(), `"`)
	subject, _, _ := strings.Cut(rest, `"`)
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.calls {
		if strings.HasPrefix(subject, c.subject) {
			right := c.subject
			if subject != right { // what follows is another each time
				right += ".>"
			}
			c.refuse(driver.Errorf("", "", fs.ErrPermission, "the NATS user lacks the right to publish to %q: give it, or use another user", right))
		}
	}
}

// ask runs f, which sends a request to a subject that begins so, and waits for
// the answer as long as patience lasts.
func (l *natsConn) ask(ctx context.Context, subject string, f func(ctx context.Context) error) error {
	if err := l.connected(ctx); err != nil {
		return err
	}
	patient, cancel := context.WithTimeoutCause(ctx, patience, errNoAnswer)
	defer cancel()
	asking, refuse := context.WithCancelCause(patient)
	defer refuse(nil)
	c := &call{subject, refuse}
	l.note(c, true)
	defer l.note(c, false)
	err := f(asking)
	if err != nil && asking.Err() != nil && ctx.Err() == nil {
		return context.Cause(asking) // a right that is missing, or errNoAnswer
	}
	return answer(err)
}

func (l *natsConn) note(c *call, on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if on && l.calls != nil {
		l.calls[c] = struct{}{}
		return
	}
	delete(l.calls, c)
}

// connected waits a moment for a link that was broken, since most come back soon.
// What it gives an error for was not sent.
func (l *natsConn) connected(ctx context.Context) error {
	if l.nc.IsConnected() {
		return nil
	}
	back := time.NewTimer(blip)
	defer back.Stop()
	changed := l.nc.StatusChanged(nats.CONNECTED, nats.CLOSED)
	defer l.nc.RemoveStatusListener(changed)
	for !l.nc.IsConnected() {
		if l.nc.IsClosed() {
			return driver.Errorf("", "", driver.ErrUnavailable, "the connection to NATS was closed: open a new Space")
		}
		select {
		case <-changed:
		case <-back.C:
			return fmt.Errorf("not connected to NATS: %w", orElse(l.nc.LastError(), errors.New("the link is down")))
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
