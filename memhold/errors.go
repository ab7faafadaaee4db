package memhold

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/holdfast-io/holdfast/core"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/session"
)

// kinds are what callers see of the machine's codes.
var kinds = map[core.Code]error{
	core.CodeHeld:        driver.ErrHeld,
	core.CodeLost:        driver.ErrLost,
	core.CodeConflict:    driver.ErrConflict,
	core.CodeInvalid:     fs.ErrInvalid,
	core.CodeNotExist:    fs.ErrNotExist,
	core.CodeExhausted:   driver.ErrExhausted,
	core.CodeNoSession:   driver.ErrLost,
	core.CodeTimeout:     context.DeadlineExceeded,
	core.CodeCanceled:    context.Canceled,
	core.CodeRevoked:     driver.ErrLost,
	core.CodeMaxHold:     driver.ErrLost,
	core.CodePermission:  fs.ErrPermission,
	core.CodeUnavailable: driver.ErrUnavailable,
}

// texts say more where the machine itself says nothing.
var texts = map[core.Code]string{
	core.CodeRevoked: "it was taken by force: somebody else decided its end",
	core.CodeMaxHold: "its MaxHold has passed",
	core.CodeLost:    "it had ended before",
}

// failure is the error of an answered call; nil: it succeeded.
func failure(c *client, u *user, call *session.Call) error {
	if call.Outcome != session.Answered {
		return unanswered(c, u, call)
	}
	r := &call.Result
	if r.Code == core.CodeOK {
		return nil
	}
	e := refusal(r.Code, r.Text)
	if r.Code == core.CodeHeld {
		e.Holders, e.Waiting = holders(call), int(r.Waiting)
	}
	return e
}

// refusal is the error of a code.
func refusal(code core.Code, text string) *driver.Error {
	e := &driver.Error{Kind: kinds[code], Outcome: driver.NotDone}
	if text == "" {
		text = texts[code]
	}
	if text != "" {
		e.Err = errors.New(text)
	}
	return e
}

// unanswered is the error of a call that the end of its session ended.
func unanswered(c *client, u *user, call *session.Call) error {
	if c.isClosed() {
		return &driver.Error{Kind: driver.ErrClosed, Outcome: known(call.Outcome)}
	}
	e := &driver.Error{Kind: driver.ErrLost, Outcome: known(call.Outcome)}
	if e.Err = u.lease.Err(); e.Err == nil {
		e.Err = errors.New("its session has ended")
	}
	return e
}

// holders are those who stand in the way of an Acquire.
func holders(call *session.Call) []driver.Claim {
	list := make([]driver.Claim, len(call.Result.Holders))
	for i := range list {
		h := &call.Result.Holders[i]
		list[i] = driver.Claim{
			Mode: driver.Mode(h.Mode), Weight: h.Weight, Token: h.Token, Owner: h.Owner, Meta: h.Meta,
			Lease: driver.LeaseID(h.Session), Held: time.Duration(call.Now - h.Since), Revoked: h.Revoked,
			ExpiresIn: left(call.Now, h.Deadline),
		}
		if w := call.Command.Wants; len(w) == 1 {
			list[i].Name, list[i].Kind = w[0].Name, driver.ResourceKind(w[0].Kind)
		}
	}
	return list
}

// left is the time to a deadline; 0: there is none, or it has passed.
func left(now, deadline int64) time.Duration {
	if deadline == 0 {
		return 0
	}
	return time.Duration(max(deadline-now, 0))
}
