package wire

import (
	"context"
	"errors"
	"io/fs"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/driver"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// table is docs/errors.md: the code of every kind. Of kinds that share a code the
// first is what a status without detail means.
var table = []struct {
	kind error
	code codes.Code
}{
	{driver.ErrHeld, codes.Aborted},
	{driver.ErrConflict, codes.Aborted},
	{driver.ErrDeadlock, codes.Aborted},
	{driver.ErrLost, codes.FailedPrecondition},
	{driver.ErrReleased, codes.FailedPrecondition},
	{driver.ErrStale, codes.FailedPrecondition},
	{driver.ErrCompacted, codes.OutOfRange},
	{driver.ErrExhausted, codes.ResourceExhausted},
	{driver.ErrUnavailable, codes.Unavailable},
	{driver.ErrClosed, codes.Unavailable},
	{fs.ErrInvalid, codes.InvalidArgument},
	{fs.ErrPermission, codes.PermissionDenied},
	{fs.ErrNotExist, codes.NotFound},
	{fs.ErrExist, codes.AlreadyExists},
	{errors.ErrUnsupported, codes.Unimplemented},
	{context.DeadlineExceeded, codes.DeadlineExceeded},
	{context.Canceled, codes.Canceled},
}

// Code is the gRPC code of an error.
func Code(err error) codes.Code {
	for _, t := range table {
		if errors.Is(err, t.kind) {
			return t.code
		}
	}
	return codes.Internal
}

// Status is err as a gRPC status with a Failure as its detail, which fits into the headers that
// clients take.
func Status(err error) *status.Status {
	e, ok := errors.AsType[*driver.Error](err)
	if !ok {
		return status.New(Code(err), fit(err.Error(), &pb.Failure{}))
	}
	f := &pb.Failure{
		Kind: KindOf(e), Op: e.Op, Name: e.Name, NotDone: e.Outcome == driver.NotDone, RetryAfterMs: ms(e.RetryAfter),
		Holders: Claims(e.Holders), Waiting: int32(e.Waiting),
	}
	if e.Err != nil {
		f.Cause = e.Err.Error()
	}
	st := status.New(Code(err), fit(err.Error(), f))
	if detailed, err := st.WithDetails(f); err == nil {
		return detailed
	}
	return st
}

// KindOf is the stable name of an error's kind; "": it has none of ours, and the code
// says it. What the standard library has an error for goes by our name, too.
func KindOf(e *driver.Error) string {
	if k, ok := e.Kind.(driver.Kind); ok {
		return string(k)
	}
	for _, k := range []driver.Kind{driver.ErrNotFound, driver.ErrInvalid} {
		if e.Kind != nil && k.Is(e.Kind) {
			return string(k)
		}
	}
	return ""
}

// Told is an error that another node has told: it is passed on as it came.
type Told struct {
	Status *status.Status
	means  error
}

// Tell is what another node has told.
func Tell(err error) error {
	st, e := status.Convert(err), toError(err)
	f := FailureOf(st)
	e.Op, e.Name = f.GetOp(), f.GetName()
	return &Told{st, e}
}

func (t *Told) Error() string { return t.means.Error() }

// Unwrap is what it means.
func (t *Told) Unwrap() error { return t.means }

// StatusOf is an error as callers by gRPC get it; leader is where they find the leader,
// if this node does not lead and cannot serve them. An error of ours says itself what
// became of the call, also if its cause is the status that a way to the leader ended
// with.
func StatusOf(err error, leader string) *status.Status {
	st := statusOf(err)
	f := FailureOf(st)
	if st.Code() != codes.Unavailable || f.GetLeader() != "" || leader == "" {
		return st
	}
	f.Leader = leader
	if told, err := status.New(st.Code(), st.Message()).WithDetails(f); err == nil {
		return told
	}
	return st
}

func statusOf(err error) *status.Status {
	if told, ok := errors.AsType[*Told](err); ok {
		return told.Status
	}
	if _, ours := errors.AsType[*driver.Error](err); !ours {
		if st, ok := status.FromError(err); ok {
			return st
		}
	}
	return Status(err)
}

// FailureOf is the detail of a status; empty if it has none.
func FailureOf(st *status.Status) *pb.Failure {
	for _, d := range st.Details() {
		if f, ok := d.(*pb.Failure); ok {
			return f
		}
	}
	return &pb.Failure{}
}

// Error is what a status means to a caller; nil stays nil. A status without a
// Failure comes from the way, not from a Holdfast server.
func Error(err error) error {
	if err == nil {
		return nil
	}
	return toError(err)
}

func toError(err error) *driver.Error {
	st := status.Convert(err)
	e := &driver.Error{Kind: kindOf(st.Code()), Err: errors.New(st.Message())}
	for _, d := range st.Details() {
		if f, ok := d.(*pb.Failure); ok {
			detail(e, f)
		}
	}
	return e
}

func kindOf(c codes.Code) error {
	for _, t := range table {
		if t.code == c {
			return t.kind
		}
	}
	return nil
}

func detail(e *driver.Error, f *pb.Failure) {
	if f.GetKind() != "" {
		e.Kind = driver.Kind(f.GetKind())
	}
	if f.GetNotDone() {
		e.Outcome = driver.NotDone
	}
	if e.Err = nil; f.GetCause() != "" {
		e.Err = errors.New(f.GetCause())
	}
	e.RetryAfter, e.Holders, e.Waiting = duration(f.GetRetryAfterMs()), claims(f.GetHolders()), int(f.GetWaiting())
}
