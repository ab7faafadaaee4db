// Package middleware decides requests of servers by a limiter: what limithttp and
// limitgrpc have in common, whatever they read requests from and write answers to.
package middleware

import (
	"context"
	"errors"
	"io/fs"
	"net/netip"
	"time"

	"github.com/holdfast-io/holdfast/limit"
)

// Limiter decides about one request of a key.
type Limiter interface {
	AllowN(ctx context.Context, key string, n int64) (limit.Decision, error)
}

// Failure is what to do with a request about which the limiter cannot decide.
type Failure uint8

// The failures.
const (
	Open   Failure = iota // it passes
	Closed                // it is refused
	Local                 // Asker.Local decides; as Open without one
)

// DefaultTimeout is how long a limiter is waited for unless an Asker says otherwise.
const DefaultTimeout = 500 * time.Millisecond

// Verdict is what to do with a request.
type Verdict uint8

// The verdicts.
const (
	Pass        Verdict = iota // let it in, and tell the client nothing
	Allowed                    // let it in, and tell the decision
	Refused                    // by the decision
	Invalid                    // its key or cost cannot be counted
	Unavailable                // nothing could decide
)

// Asker asks the limiters.
type Asker struct {
	Limiter   Limiter
	OnFailure Failure
	Local     Limiter
	Shadow    bool
	// Timeout bounds the wait for Limiter, and that for Local; 0 or less: DefaultTimeout.
	Timeout time.Duration
}

// Decide asks for cost of key, and tells observe what Limiter answered. A client that
// leaves, or has little time, is counted all the same: otherwise a request
// that its client cancels would pass by every limit that fails open.
func (a *Asker) Decide(ctx context.Context, key string, cost int64, observe func(limit.Decision, error)) (limit.Decision, Verdict) {
	d, err := a.ask(ctx, a.Limiter, key, cost)
	if observe != nil {
		observe(d, err)
	}
	if err != nil && !errors.Is(err, fs.ErrInvalid) && a.OnFailure == Local && a.Local != nil {
		d, err = a.ask(ctx, a.Local, key, cost)
	}
	switch {
	case a.Shadow:
		return d, Pass
	case errors.Is(err, fs.ErrInvalid): // by the client, which must not be let in by that
		return d, Invalid
	case err != nil && a.OnFailure == Closed:
		return d, Unavailable
	case err != nil:
		return d, Pass
	case d.Allowed:
		return d, Allowed
	}
	return d, Refused
}

func (a *Asker) ask(ctx context.Context, l Limiter, key string, cost int64) (limit.Decision, error) {
	timeout := a.Timeout
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	return l.AllowN(ctx, key, cost)
}

// Plain is an address without a zone, and of IPv4 in IPv6 the IPv4.
func Plain(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

// KeyOf is the key of a client's address: of IPv6 its network of 64 bits, all of which one client
// may have.
func KeyOf(a netip.Addr) string {
	if a = Plain(a); a.Is6() {
		return netip.PrefixFrom(a, 64).Masked().String()
	}
	return a.String()
}
