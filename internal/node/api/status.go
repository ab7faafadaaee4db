package api

import (
	"errors"
	"net/http"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/wire"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// status is an error as callers get it. Who asked a node that cannot serve is
// told where the leader is.
func (g *gateway) status(err error) *status.Status {
	st := statusOf(err)
	f := failureOf(st)
	if st.Code() != codes.Unavailable || f.GetLeader() != "" {
		return st
	}
	f.Leader = g.leader()
	if told, err := status.New(st.Code(), st.Message()).WithDetails(f); err == nil {
		return told
	}
	return st
}

// statusOf is the status of an error. One of ours says itself what became of the call,
// also if its cause is the status that a way to the leader ended with.
func statusOf(err error) *status.Status {
	if _, ours := errors.AsType[*driver.Error](err); !ours {
		if st, ok := status.FromError(err); ok {
			return st
		}
	}
	return wire.Status(err)
}

// failureOf is the detail of a status; empty if it has none.
func failureOf(st *status.Status) *pb.Failure {
	for _, d := range st.Details() {
		if f, ok := d.(*pb.Failure); ok {
			return f
		}
	}
	return &pb.Failure{}
}

// leader is where clients find the leader, if it is another node.
func (g *gateway) leader() string {
	if l, _ := g.s.Leader(); l.ID != g.s.ID() {
		return l.Addr
	}
	return ""
}

// errTooLarge: a request is longer than maxRequest.
var errTooLarge error = driver.Errorf("call", "", driver.ErrExhausted, "the request has more than %d bytes: split it", maxRequest)

// httpCode is docs/errors.md for HTTP.
func httpCode(st *status.Status) int {
	switch driver.Kind(failureOf(st).GetKind()) {
	case driver.ErrStale:
		return http.StatusPreconditionFailed
	case driver.ErrCompacted:
		return http.StatusGone
	}
	if code, ok := httpCodes[st.Code()]; ok {
		return code
	}
	return http.StatusInternalServerError
}

// clientClosed is what proxies say of a caller that went away.
const clientClosed = 499

var httpCodes = map[codes.Code]int{
	codes.OK:                 http.StatusOK,
	codes.Aborted:            http.StatusConflict,
	codes.FailedPrecondition: http.StatusGone,
	codes.OutOfRange:         http.StatusGone,
	codes.ResourceExhausted:  http.StatusTooManyRequests,
	codes.Unavailable:        http.StatusServiceUnavailable,
	codes.InvalidArgument:    http.StatusBadRequest,
	codes.PermissionDenied:   http.StatusForbidden,
	codes.NotFound:           http.StatusNotFound,
	codes.AlreadyExists:      http.StatusConflict,
	codes.Unimplemented:      http.StatusNotImplemented,
	codes.DeadlineExceeded:   http.StatusGatewayTimeout,
	codes.Canceled:           clientClosed,
}

// errDraining is told to those who wait when the node is about to stop.
var errDraining = errors.New("the node is about to stop: ask another, or try again")
