// Package natsconn is a connection to NATS as all of Holdfast wants it: it comes back
// by itself, keeps nothing to be sent later, and tells a right that is missing from a
// server that does not answer.
package natsconn

import (
	"cmp"
	"context"
	"crypto/tls"
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
	// Patience is how long one request may take.
	Patience = 2 * time.Second
	// A link that says nothing is taken for broken after two pings.
	pingEvery = 2 * time.Second
	// ComeBack is the pause between two attempts to connect again.
	ComeBack = 100 * time.Millisecond
	// blip is how long a request waits for a link that was broken.
	blip = 500 * time.Millisecond
)

// Conn is a connection with what was asked over it and not answered yet.
type Conn struct {
	*nats.Conn
	tell   func(error)
	dialer dialer

	mu    sync.Mutex
	calls map[*call]struct{}
}

// Of is the caller's own connection, which does not tell of missing rights.
func Of(nc *nats.Conn) *Conn { return &Conn{Conn: nc} }

// Settings are where and how to connect.
type Settings struct {
	// Addrs are servers, of which one that answers is enough.
	Addrs []string
	// User has a password, or is a token; nil: none.
	User *url.Userinfo
	// TLS is for servers that are to be verified by more than the system's
	// authorities; nil: TLS is used if the server asks for it.
	TLS *tls.Config
	// Later: a server that cannot be reached is no error; the connection is made as
	// soon as there is one.
	Later bool
	// Refused is told each right that is missing; nil: nobody.
	Refused func(error)
}

// call is a request on its way.
type call struct {
	subject string // what it is sent to is this, or begins with it and a dot
	refuse  context.CancelCauseFunc
}

// Dial connects to one of the addresses. It goes on connecting for ever when the
// link breaks later; nothing is kept to be sent when it is back.
func Dial(ctx context.Context, s Settings) (*Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, &driver.Error{Op: "open", Kind: err, Outcome: driver.NotDone}
	}
	c := &Conn{calls: map[*call]struct{}{}, tell: s.Refused}
	opts := s.options(c)
	nc, err := s.connect(ctx, opts)
	if err != nil {
		err = unconnected(ctx, err)
		if !s.Later || !errors.Is(err, driver.ErrUnavailable) {
			return nil, err
		}
		nc, err = s.connect(ctx, append(opts, nats.RetryOnFailedConnect(true)))
	}
	if err != nil {
		return nil, unconnected(ctx, err)
	}
	c.Conn = nc
	return c, nil
}

// Close ends the connection.
func (c *Conn) Close() {
	c.Conn.Close()
	c.dialer.leave(true)
}

// connect is nats.Connect for as long as ctx lasts: a shorter nats.Timeout would bound
// every later connection too. One that comes after ctx has ended is closed.
func (s *Settings) connect(ctx context.Context, opts []nats.Option) (*nats.Conn, error) {
	type answer struct {
		nc  *nats.Conn
		err error
	}
	done := make(chan answer, 1)
	go func() {
		nc, err := nats.Connect(strings.Join(s.Addrs, ","), opts...)
		done <- answer{nc, err}
	}()
	select {
	case a := <-done:
		return a.nc, a.err
	case <-ctx.Done():
		go func() {
			if a := <-done; a.err == nil {
				a.nc.Close()
			}
		}()
		return nil, fmt.Errorf("no answer from NATS: %w", ctx.Err())
	}
}

func (s *Settings) options(c *Conn) []nats.Option {
	opts := []nats.Option{
		nats.Name("holdfast"), nats.Timeout(Patience), nats.SetCustomDialer(&c.dialer), nats.MaxReconnects(-1), nats.ReconnectWait(ComeBack), nats.ReconnectJitter(ComeBack, ComeBack),
		nats.ReconnectBufSize(-1), nats.PingInterval(pingEvery), nats.MaxPingsOutstanding(2), nats.IgnoreAuthErrorAbort(),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { c.refused(err) }),
	}
	if password, ok := s.User.Password(); ok {
		opts = append(opts, nats.UserInfo(s.User.Username(), password))
	} else if s.User.Username() != "" {
		opts = append(opts, nats.Token(s.User.Username()))
	}
	if s.TLS != nil {
		opts = append(opts, nats.Secure(s.TLS))
	}
	return opts
}

// unconnected is the error of Open.
func unconnected(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthExpired) || errors.Is(err, nats.ErrAuthRevoked):
		return driver.Errorf("open", "", fs.ErrPermission, "NATS refuses the user, password or token: %w", err)
	case ctx.Err() != nil:
		return &driver.Error{Op: "open", Kind: ctx.Err(), Outcome: driver.NotDone, Err: err}
	}
	e := driver.Errorf("open", "", driver.ErrUnavailable, "no connection: %w; see that the server runs and the address is right", err)
	e.RetryAfter = ComeBack
	return e
}

// refused ends the calls that an error of the connection is about: the server
// does not answer what its user has no right to.
func (c *Conn) refused(err error) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return
	}
	what, rest, _ := strings.Cut(err.Error(), `"`)
	subject, _, _ := strings.Cut(rest, `"`)
	right := "publish"
	if strings.Contains(strings.ToLower(what), "subscription") {
		right = "subscribe"
	}
	if c.tell != nil {
		c.tell(Lacks(right, subject))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for waiting := range c.calls {
		if subject == waiting.subject || strings.HasPrefix(subject, waiting.subject+".") {
			to := waiting.subject
			if subject != to { // what follows is another each time
				to += ".>"
			}
			waiting.refuse(Lacks(right, to))
		}
	}
}

// Lacks is the error of a right, to publish or to subscribe, that is missing.
func Lacks(right, subject string) error {
	return driver.Errorf("", "", fs.ErrPermission, "the NATS user lacks the right to %s to %q: give it, or use another user", right, subject)
}

// ErrSilent is the cause of a request that found no answer.
var ErrSilent = errors.New("no answer from NATS")

// Ask runs f, which sends a request to a subject that begins so, and waits for
// the answer as long as Patience lasts.
func (c *Conn) Ask(ctx context.Context, subject string, f func(ctx context.Context) error) error {
	return c.AskFor(ctx, Patience, subject, f)
}

// AskFor is Ask with another patience.
func (c *Conn) AskFor(ctx context.Context, patience time.Duration, subject string, f func(ctx context.Context) error) error {
	if err := c.Connected(ctx); err != nil {
		return err
	}
	patient, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("%w within %s", ErrSilent, patience))
	defer cancel()
	asking, refuse := context.WithCancelCause(patient)
	defer refuse(nil)
	waiting := &call{subject, refuse}
	c.note(waiting, true)
	defer c.note(waiting, false)
	err := f(asking)
	if err != nil && asking.Err() != nil && ctx.Err() == nil {
		return context.Cause(asking) // a right that is missing, or no answer
	}
	return err
}

func (c *Conn) note(waiting *call, on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if on && c.calls != nil {
		c.calls[waiting] = struct{}{}
		return
	}
	delete(c.calls, waiting)
}

// Connected waits a moment for a link that was broken, since most come back soon.
// What it gives an error for was not sent.
func (c *Conn) Connected(ctx context.Context) error {
	if c.IsConnected() {
		return nil
	}
	back := time.NewTimer(blip)
	defer back.Stop()
	changed := c.StatusChanged(nats.CONNECTED, nats.CLOSED)
	defer c.RemoveStatusListener(changed)
	for !c.IsConnected() {
		if c.IsClosed() {
			return driver.Errorf("", "", driver.ErrUnavailable, "the connection to NATS was closed: open a new one")
		}
		select {
		case <-changed:
		case <-back.C:
			return fmt.Errorf("not connected to NATS: %w", cmp.Or(c.LastError(), errors.New("the link is down")))
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
