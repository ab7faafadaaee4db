package client

import (
	"errors"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/convert"
	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/session"
)

// failure is the error of an answered call; nil: it succeeded.
func failure(c *Client, u *ClientSession, call *session.Call) error {
	r := &call.Result
	if call.Outcome != session.Answered && !call.Denied {
		return unanswered(c, u, call)
	}
	if r.Code == core.CodeOK {
		return nil
	}
	e := convert.RefusalOf(call.Command.Op, r.Code, r.Text)
	if call.Outcome == session.Unknown { // the server refuses it now, and may have done it before
		e.Outcome = driver.Unknown
	}
	switch r.Code {
	case core.CodeHeld:
		e.Holders, e.Waiting = convert.Holders(call.Now, r.Holders, call.Command.Wants), int(r.Waiting)
	case core.CodeUnavailable: // the group grants nothing until a time, or nobody knows how long
		e.RetryAfter = max(e.RetryAfter, convert.Left(call.Now, r.Deadline))
	}
	return e
}

// unanswered is the error of a call that the end of its session ended.
func unanswered(c *Client, u *ClientSession, call *session.Call) error {
	if err := c.ended(known(call.Outcome)); err != nil {
		return err
	}
	if u.refused != nil {
		e := *u.refused // which tells nothing of what was sent before
		e.Outcome = known(call.Outcome)
		return &e
	}
	e := &driver.Error{Kind: driver.ErrLost, Outcome: known(call.Outcome)}
	if e.Err = u.session.Err(); e.Err == nil {
		e.Err = errors.New("its session has ended")
	}
	return e
}
