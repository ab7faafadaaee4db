package wire

import (
	"net/http"

	"google.golang.org/grpc/codes"

	"github.com/holdfast-io/holdfast/driver"
)

// HTTPCode is docs/errors.md for HTTP.
func HTTPCode(err error) int {
	st := statusOf(err)
	switch driver.Kind(FailureOf(st).GetKind()) {
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
