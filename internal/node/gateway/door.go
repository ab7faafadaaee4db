package gateway

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/node/admission"
	"github.com/holdfast-io/holdfast/server"
)

// Call is a call as the door sees it, whatever dialect it came in.
type Call struct {
	// Method is its name in the metrics, /holdfast.v1.Service/Method or REST/ and more.
	Method string
	Class  admission.Class
	// MayWait: it may wait for a hold, on a connection that it shares with other calls.
	// Those of REST and Connect have a connection each, and leave it false.
	MayWait bool
	// Twice: it may happen twice.
	Twice bool
	// Local: the node that was asked answers it, be it the leader or not.
	Local bool
	// Told: here tells the caller itself what became of it, so that nobody else can be
	// asked after that.
	Told bool
	// Beside is what it says beside its request, by name, each time that it does.
	Beside Beside
	// Conn is the connection that it shares with other calls, as a key of a map; nil:
	// it has its own.
	Conn any
}

// CallOf is a call of the services of proto/holdfast/v1. r is its request.
func CallOf(method string, r any, beside Beside, conn any) *Call {
	return &Call{
		Method: method, Class: classOf(method), MayWait: mayWait[method], Twice: repeatable(method, r, beside.first(HeaderKey) != ""),
		Local: local[method], Beside: beside, Conn: conn,
	}
}

// local are the calls about the node itself, watches, which every node serves,
// streams, which are passed on message by message if at all, and those of operators,
// which the node itself brings before the leader.
var local = methodSet(`AdminService/Status AdminService/Backup AdminService/ChangeMembers AdminService/MoveLeader AdminService/CheckState AdminService/Unfreeze WatchService/Watch LockService/Watch LockService/LeaseKeepAlive SessionStream/Attach`)

// Here answers a call on this node.
type Here func(ctx context.Context) (any, error)

// There has the leader of t answer a call; crowded is what to say as HeaderCrowded, 0:
// nothing. What the leader refuses is or wraps a *driver.Error.
type There func(ctx context.Context, t *Tenure, crowded int) (any, error)

// ErrPassed is what There returns if the leader has answered the caller itself.
var ErrPassed = errors.New("the leader has answered")

// Through is the door for every call that is answered once. It is counted, finds a
// place among the calls under way or is refused, and is answered here or there.
func (g *Gateway) Through(ctx context.Context, c *Call, here Here, there There) (any, error) {
	began := time.Now()
	var out any
	ctx, err := withCaller(ctx, c.Beside, c.Conn)
	if err == nil {
		out, err = g.admitted(ctx, c, here, there)
	}
	err = Honest(ctx, err)
	if err != ErrPassed {
		g.meter.called(c.Method, g.label(err), began)
	}
	return out, err
}

func (g *Gateway) admitted(ctx context.Context, c *Call, here Here, there There) (any, error) {
	leave, err := g.gate.enter(c.Class)
	if err != nil {
		return nil, err
	}
	defer leave()
	return g.Anywhere(ctx, c, here, there)
}

// Stay is the door for every call that stays for long: watches and streams.
func (g *Gateway) Stay(ctx context.Context, c *Call, f func(ctx context.Context) error) error {
	began := time.Now()
	err := g.settled(ctx, c, f)
	g.meter.called(c.Method, g.label(err), began)
	return err
}

func (g *Gateway) settled(ctx context.Context, c *Call, f func(ctx context.Context) error) error {
	ctx, err := withCaller(ctx, c.Beside, c.Conn)
	if err != nil {
		return err
	}
	leave, err := g.gate.settle(ctx, c.Class)
	if err != nil {
		return err
	}
	defer leave()
	return f(ctx)
}

// maxAsked is how many leaders one call is brought before.
const maxAsked = 4

// Anywhere runs a call that is through the door where the leader is: here, or there if
// another node leads. If the leader goes, the next one is asked, provided that the call
// certainly has not happened yet or may happen twice; otherwise the caller has to know.
func (g *Gateway) Anywhere(ctx context.Context, c *Call, here Here, there There) (out any, err error) {
	if c.Local {
		return answered(ctx, here)
	}
	t, tried := g.tenures.known(ctx), false
	if t.ID == 0 {
		ctx = waitedBefore(ctx)
	}
	for range maxAsked {
		if !t.elsewhere() || callerOf(ctx).relayed {
			out, err = answered(ctx, here)
		} else {
			out, err = g.pass(ctx, c, t, there)
		}
		if tried {
			err = doubtful(err)
		}
		if err != nil && !notDone(err) {
			ctx, tried = triedBefore(ctx), true
		}
		if !mayAsk(ctx, err, c.Twice) || c.Told && !t.elsewhere() {
			return out, err
		}
		if t == g.tenures.current() && t.here {
			return out, err // it leads, and has its reasons
		}
		if t == g.tenures.current() && t.ID == 0 {
			return out, leaderless(err)
		}
		next := g.tenures.after(ctx, t)
		if next == nil {
			return out, err
		}
		t = next
	}
	return out, err
}

// leaderless is the failure of a call that has waited for a leader in vain: there is none that
// could be asked instead.
func leaderless(err error) error {
	e, ok := errors.AsType[*driver.Error](err)
	if !ok || !errors.Is(err, server.ErrNotLeader) {
		return err
	}
	c := *e
	c.Err, c.RetryAfter = errLeaderless, time.Second
	return &c
}

var errLeaderless = errors.New("this node knows no leader: try again, or see whether most of the nodes run")

// answered runs a call on this node.
func answered(ctx context.Context, here Here) (any, error) {
	out, err := here(ctx)
	if err != nil {
		return nil, Honest(ctx, err)
	}
	return out, nil
}

// doubtful is a failure of a call that an earlier leader may have done: that the
// last one could not do it does not say that it was not done. What the group itself
// has decided holds for both.
func doubtful(err error) error {
	e, ok := errors.AsType[*driver.Error](err)
	if !ok || e.Outcome != driver.NotDone || decided(e) {
		return err
	}
	c := *e
	c.Outcome = driver.Unknown
	return &c
}

// decided: a failure of that kind comes from the group, not from a node that is busy,
// does not lead or cannot be reached.
func decided(e *driver.Error) bool {
	switch e.Kind {
	case driver.ErrUnavailable, driver.ErrClosed, driver.ErrExhausted, context.Canceled, context.DeadlineExceeded:
		return false
	}
	return true
}

// pass has the leader answer a call.
func (g *Gateway) pass(ctx context.Context, c *Call, t *Tenure, there There) (any, error) {
	crowded, back := g.gate.away(ctx, c.Class, c.MayWait)
	defer back()
	return there(ctx, t, crowded)
}

// mayAsk reports whether the next leader may be asked: the last one could not serve,
// it was not merely busy, and nothing is lost if the call happens again.
func mayAsk(ctx context.Context, err error, twice bool) bool {
	e, ok := errors.AsType[*driver.Error](err)
	return ok && unable(e) && (e.Outcome == driver.NotDone || twice) && ctx.Err() == nil && !callerOf(ctx).relayed
}

// NothingDone: a node says that it could not serve a call, and has certainly not done it, so
// that the next leader can be asked.
func NothingDone(err error) bool {
	e, ok := errors.AsType[*driver.Error](err)
	return ok && unable(e) && e.Outcome == driver.NotDone
}

// MaybeDone: a node says that it could not serve a call to its end, and may have done it, so
// that the next leader can be asked if the call may happen twice.
func MaybeDone(err error) bool {
	e, ok := errors.AsType[*driver.Error](err)
	return ok && unable(e) && e.Outcome != driver.NotDone
}

// unable: the node could not serve, and was not merely busy.
func unable(e *driver.Error) bool { return unavailable(e) && e.RetryAfter == 0 }

func unavailable(e *driver.Error) bool {
	return e.Kind == error(driver.ErrUnavailable) || e.Kind == error(driver.ErrClosed)
}

// Honest takes back that something was not done, if the node was asked for a change
// on the way which may have happened: what failed then was only a later step. The
// same holds if an earlier leader was asked.
func Honest(ctx context.Context, err error) error {
	e, ok := errors.AsType[*driver.Error](err)
	if c := callerOf(ctx); ok && (c.earlier || unavailable(e) && c.changed()) {
		return doubtful(err)
	}
	return err
}

// Unanswered is the error of a call that the leader has not answered: not done if
// nothing of it was sent, else nobody knows. ctx is that of the call, within t.
func Unanswered(ctx context.Context, t *Tenure, err error, sent bool) error {
	e := &driver.Error{Op: "ask the leader", Name: t.Addr, Kind: driver.ErrUnavailable, Err: err}
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errDeposed) || errors.Is(cause, errSilent):
		e.Err = cause
	case ctx.Err() != nil:
		e.Kind, e.Err = ctx.Err(), cause
	}
	if !sent {
		e.Outcome = driver.NotDone
		if e.Err == errDeposed || e.Err == errSilent {
			e.Err = errUnreached
		}
	}
	return e
}

var errUnreached = errors.New("it could not be reached")

// GiveUp ends the tenure of a leader that does not answer. A call from now on tries
// anew.
func (g *Gateway) GiveUp(t *Tenure) { g.tenures.giveUp(t, errSilent) }

// AskInstead is where to ask instead of this node after an error; "": here, or that is
// not known.
func (g *Gateway) AskInstead(err error) string {
	e, ok := errors.AsType[*driver.Error](err)
	if l, _ := g.s.Leader(); ok && unavailable(e) && l.ID != g.s.ID() {
		return l.Addr
	}
	return ""
}
