package driver

import (
	"context"
	"errors"
	"iter"
	"time"
)

// Base answers errors.ErrUnsupported to everything. Embed it in every driver.
type Base struct{}

var _ Driver = Base{}

func (Base) base() {}

// Info declares nothing.
func (Base) Info() Info { return Info{} }

// Acquire is unsupported.
func (Base) Acquire(context.Context, *Request) (Grant, error) {
	return Grant{}, errors.ErrUnsupported
}

// Inspect is unsupported.
func (Base) Inspect(context.Context, *InspectRequest) (InspectReply, error) {
	return InspectReply{}, errors.ErrUnsupported
}

// Force is unsupported.
func (Base) Force(context.Context, *ForceRequest) (ForceReply, error) {
	return ForceReply{}, errors.ErrUnsupported
}

// Resize is unsupported.
func (Base) Resize(context.Context, string, int64) error { return errors.ErrUnsupported }

// Delete is unsupported.
func (Base) Delete(context.Context, ResourceKind, string) error { return errors.ErrUnsupported }

// OpenSession is unsupported.
func (Base) OpenSession(context.Context, Spec) (*Session, error) { return nil, errors.ErrUnsupported }

// KeepSession is unsupported.
func (Base) KeepSession(context.Context, *Session, time.Duration) error { return errors.ErrUnsupported }

// EndSession is unsupported.
func (Base) EndSession(context.Context, *Session) error { return errors.ErrUnsupported }

// SessionInfo is unsupported.
func (Base) SessionInfo(context.Context, *SessionInfoRequest) (SessionInfo, error) {
	return SessionInfo{}, errors.ErrUnsupported
}

// Count is unsupported.
func (Base) Count(context.Context, *CountRequest) (CountReply, error) {
	return CountReply{}, errors.ErrUnsupported
}

// Reserve is unsupported.
func (Base) Reserve(context.Context, *ReserveRequest) (ReserveReply, error) {
	return ReserveReply{}, errors.ErrUnsupported
}

// CountDown is unsupported.
func (Base) CountDown(context.Context, *CountDownRequest) (CountDownReply, error) {
	return CountDownReply{}, errors.ErrUnsupported
}

// Limit is unsupported.
func (Base) Limit(context.Context, *LimitRequest) (LimitReply, error) {
	return LimitReply{}, errors.ErrUnsupported
}

// Txn is unsupported.
func (Base) Txn(context.Context, *TxnRequest) (*TxnReply, error) {
	return nil, errors.ErrUnsupported
}

// Watch is unsupported.
func (Base) Watch(context.Context, *WatchRequest) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) { yield(Event{}, errors.ErrUnsupported) }
}

// Sweep is unsupported.
func (Base) Sweep(context.Context, *SweepRequest) (SweepReply, error) {
	return SweepReply{}, errors.ErrUnsupported
}

// Ping is unsupported.
func (Base) Ping(context.Context) error { return errors.ErrUnsupported }

// OnFault forgets f: a driver without background work has nothing to report.
func (Base) OnFault(func(op, name string, err error)) {}

// Close does nothing.
func (Base) Close(context.Context) error { return nil }
