package api

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/wire"
)

// headerRelayed marks a call that another node passed on: it goes no further.
const headerRelayed = "holdfast-relayed"

// headerTried marks a call that an earlier leader may have done: whatever becomes of
// it now, nobody may be told that it was not done.
const headerTried = "holdfast-tried"

// maxAsked is how many leaders one call is brought before.
const maxAsked = 4

// anywhere runs a call where the leader is: here, or there if another node leads. If
// the leader goes, the next one is asked, provided that the call certainly has not
// happened yet or may happen twice; otherwise the caller has to know.
func (g *gateway) anywhere(ctx context.Context, method string, r any, here func(context.Context) (any, error)) (out any, st *status.Status) {
	t, tried := g.tenures.known(ctx), false
	for range maxAsked {
		if !t.elsewhere() || metadataOf(ctx)(headerRelayed) != "" {
			out, st = g.answered(ctx, here)
		} else {
			out, st = g.pass(ctx, t, method, r)
		}
		if tried {
			st = doubtful(st)
		}
		tried = tried || !failureOf(st).GetNotDone()
		if !mayAsk(ctx, st, repeatable(ctx, method, r)) {
			return out, st
		}
		if t == g.tenures.current() && t.here {
			return out, st // it leads, and has its reasons
		}
		next := g.tenures.after(ctx, t)
		if next == nil {
			return out, st
		}
		t = next
	}
	return out, st
}

// answered runs a call on this node.
func (g *gateway) answered(ctx context.Context, here func(context.Context) (any, error)) (any, *status.Status) {
	out, err := here(ctx)
	if err != nil {
		return nil, g.status(err)
	}
	return out, nil
}

// doubtful is a failure of a call that an earlier leader may have done: that the
// last one could not do it does not say that it was not done. What the group itself
// has decided holds for both.
func doubtful(st *status.Status) *status.Status {
	f := failureOf(st)
	if !f.GetNotDone() || decided(st.Code()) {
		return st
	}
	f.NotDone = false
	if told, err := status.New(st.Code(), st.Message()).WithDetails(f); err == nil {
		return told
	}
	return st
}

// decided: a failure of that code comes from the group, not from a node that is busy,
// does not lead or cannot be reached.
func decided(c codes.Code) bool {
	switch c {
	case codes.Unavailable, codes.ResourceExhausted, codes.Canceled, codes.DeadlineExceeded:
		return false
	}
	return true
}

// mayAsk reports whether the next leader may be asked: the last one could not serve,
// it was not merely busy, and nothing is lost if the call happens again.
func mayAsk(ctx context.Context, st *status.Status, twice bool) bool {
	f := failureOf(st)
	return st.Code() == codes.Unavailable && f.GetRetryAfterMs() == 0 && (f.GetNotDone() || twice) &&
		ctx.Err() == nil && metadataOf(ctx)(headerRelayed) == ""
}

// passedOn is what a call has to say besides its request: what it is about, and
// which trace it belongs to (W3C Trace Context, and its baggage).
var passedOn = []string{headerNamespace, headerKey, "traceparent", "tracestate", "baggage"}

// pass asks the leader instead.
func (g *gateway) pass(ctx context.Context, t *tenure, method string, r any) (any, *status.Status) {
	out, err := answerOf(method)
	if err != nil {
		return nil, status.Convert(err)
	}
	l, err := g.relay.use(t)
	if err != nil {
		return nil, g.status(g.unanswered(ctx, t, err, false))
	}
	defer g.relay.leave(t)
	md := []string{headerRelayed, "1"}
	for _, name := range passedOn {
		if v := metadataOf(ctx)(name); v != "" {
			md = append(md, name, v)
		}
	}
	crowded, back := g.gate.away(ctx, classOf(method), mayWait[method])
	defer back()
	if crowded > 0 {
		md = append(md, headerCrowded, strconv.Itoa(crowded))
	}
	during, cancel := t.during(ctx)
	defer cancel()
	var sent atomic.Bool
	err = g.relay.invoke(context.WithValue(metadata.AppendToOutgoingContext(during, md...), sentKey{}, &sent), l, method, r, out)
	if err == nil || fromLeader(err) {
		return out, status.Convert(err)
	}
	return nil, g.status(g.unanswered(during, t, err, sent.Load()))
}

// fromLeader: it is the leader's own word, not that of the way to it.
func fromLeader(err error) bool {
	st := status.Convert(err)
	switch st.Code() {
	case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded:
		return len(st.Details()) > 0
	}
	return true
}

// unanswered is the error of a call that the leader has not answered: not done if
// nothing of it was sent, else nobody knows. ctx is that of the call.
func (g *gateway) unanswered(ctx context.Context, t *tenure, err error, sent bool) error {
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

// answerOf is an empty answer of a method, /service/method.
func answerOf(full string) (proto.Message, error) {
	name := protoreflect.FullName(strings.ReplaceAll(strings.TrimPrefix(full, "/"), "/", "."))
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
	if err != nil {
		return nil, err
	}
	t, err := protoregistry.GlobalTypes.FindMessageByName(d.(protoreflect.MethodDescriptor).Output().FullName())
	if err != nil {
		return nil, err
	}
	return t.New().Interface(), nil
}

// doubts: that a call failed with a code does not say that it was not done, since it
// may have been, before it failed or by an earlier leader.
func (c caller) doubts(code codes.Code) bool {
	return c.changed() && code == codes.Unavailable || c.earlier && !decided(code)
}

// honest takes back that something was not done, if the node was asked for a change
// on the way which may have happened: what failed then was only a later step. The
// same holds if an earlier leader was asked.
func honest(ctx context.Context, err error) error {
	e, ok := errors.AsType[*driver.Error](err)
	if !ok || e.Outcome != driver.NotDone || !callerOf(ctx).doubts(wire.Code(e)) {
		return err
	}
	c := *e
	c.Outcome = driver.Unknown
	return &c
}
