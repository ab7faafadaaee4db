package redishold

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/redis/rueidis"
)

// unhurried is a client on which a call fails by no context but its own. rueidis makes a
// connection when the first call needs it, with the context of that call; all others that
// come meanwhile wait for it, whatever their contexts say, and fail with that one. Here
// the making of a connection has the time that the client's options give it, and each call
// leaves when its own context ends.
type unhurried struct {
	rueidis.Client
	kill context.CancelFunc // ends connections that are being made; nil: the client is the caller's
}

// connect is a client of our own. With its end that of every connection comes, also of one that
// is made just then: rueidis would keep that.
func connect(opt rueidis.ClientOption) (rueidis.Client, error) {
	life, kill := context.WithCancel(context.Background())
	opt.DialCtxFn = within(life, opt.DialCtxFn)
	rc, err := rueidis.NewClient(bySilence(opt))
	if err != nil {
		kill()
		return nil, err
	}
	return unhurried{rc, kill}, nil
}

func (u unhurried) Close() {
	u.Client.Close()
	if u.kill != nil {
		u.kill()
	}
}

// dialFunc is how rueidis has connections made.
type dialFunc = func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error)

// within is dial for as long as life lasts.
func within(life context.Context, dial dialFunc) dialFunc {
	if dial == nil {
		dial = dialTCP
	}
	return func(ctx context.Context, addr string, d *net.Dialer, secret *tls.Config) (net.Conn, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(life, cancel)()
		conn, err := dial(ctx, addr, d, secret)
		if err != nil {
			return nil, err
		}
		return boundConn{conn, context.AfterFunc(life, func() { _ = conn.Close() })}, nil
	}
}

func dialTCP(ctx context.Context, addr string, d *net.Dialer, secret *tls.Config) (net.Conn, error) {
	if secret != nil {
		return (&tls.Dialer{NetDialer: d, Config: secret}).DialContext(ctx, "tcp", addr)
	}
	return d.DialContext(ctx, "tcp", addr)
}

// boundConn is a connection that something closes in time.
type boundConn struct {
	net.Conn
	unbind func() bool // it need not any more
}

func (c boundConn) Close() error {
	c.unbind()
	return c.Conn.Close()
}

func (u unhurried) Do(ctx context.Context, command rueidis.Completed) rueidis.RedisResult {
	answer, err := unhurriedly(ctx, func(ctx context.Context) rueidis.RedisResult { return u.Client.Do(ctx, command) })
	if err != nil {
		return rueidis.NewErrorResult(err)
	}
	return answer
}

func (u unhurried) DoMulti(ctx context.Context, commands ...rueidis.Completed) []rueidis.RedisResult {
	answers, err := unhurriedly(ctx, func(ctx context.Context) []rueidis.RedisResult { return u.Client.DoMulti(ctx, commands...) })
	if err == nil {
		return answers
	}
	answers = make([]rueidis.RedisResult, len(commands))
	for i := range answers {
		answers[i] = rueidis.NewErrorResult(err)
	}
	return answers
}

// unhurriedly is what send returns, unless ctx ends before: send goes on beside then.
func unhurriedly[T any](ctx context.Context, send func(context.Context) T) (answer T, err error) {
	if ctx.Done() == nil {
		return send(ctx), nil
	}
	if ctx.Err() != nil {
		return answer, ctx.Err()
	}
	got := make(chan T, 1)
	go func() { got <- send(outlived{ctx}) }()
	select {
	case answer = <-got:
		return answer, nil
	case <-ctx.Done():
		return answer, ctx.Err()
	}
}

// outlived is a context that cuts nothing short. Its end is still seen by a look at it:
// rueidis looks before it sends and before it repeats, so that a call that was given up
// while its connection was made is not sent.
type outlived struct{ context.Context }

func (outlived) Deadline() (time.Time, bool) { return time.Time{}, false }
func (outlived) Done() <-chan struct{}       { return nil }
