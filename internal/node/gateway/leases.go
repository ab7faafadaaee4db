package gateway

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/convert"
	"github.com/holdfast-io/holdfast/internal/core"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// OpenLease opens a lease. One that is there is another's, unless this is the same call
// again: two callers that share a lease would share every lock of it.
func (g *Gateway) OpenLease(ctx context.Context, r *pb.OpenRequest) (*pb.OpenResponse, error) {
	if err := g.checkOpen(r); err != nil {
		return nil, err
	}
	who := callerOf(ctx)
	number := r.LeaseId
	switch {
	case number == 0 && who.key != "":
		number = max(1, keyNumber(who.key))
	case number == 0:
		number = g.newNumber()
	}
	id, c := sessionOf(who.namespace, number), g.opening(&who, r, number)
	reply, err := g.openFrame(ctx, id, c)
	if err == nil && reply.Results[0].Code == core.CodeExists {
		reply, err = g.reopen(ctx, id, c, number, r)
	}
	if err != nil {
		return nil, err
	}
	if reply.Results[0].Code == core.CodeNoSession {
		return nil, endedNumber(number, r.LeaseId == 0)
	}
	if err := refusal(&reply.Results[0], reply.Now, nil); err != nil {
		return nil, err
	}
	return &pb.OpenResponse{
		Header: g.Header(ctx, reply.Results[0].Revision), LeaseId: number, Session: id[:],
		TtlMs: convert.Left(reply.Now, reply.Deadline).Milliseconds(),
	}, nil
}

// endedNumber refuses the number of a lease that has ended: calls of its old owner may still
// come. One that was not chosen by its caller is that of an idempotency key.
func endedNumber(number int64, keyed bool) error {
	if keyed {
		return errUsedKey()
	}
	return driver.Errorf("", "", fs.ErrExist, "lease %d has ended, and its number is refused for ten minutes: choose another, or 0 to have one chosen", number)
}

func (g *Gateway) checkOpen(r *pb.OpenRequest) error {
	if _, err := checkTTL(r.TtlMs, g.s.MinTTL()); err != nil {
		return err
	}
	if r.LeaseId < 0 || ofHold(r.LeaseId) {
		return Invalid("", "lease %d: choose a positive number outside of 2^52 to 2^53, or 0", r.LeaseId)
	}
	return cmp.Or(checkOwner(r.Owner), checkReclaim(r.Policy, r.GraceMs), checkBytes("the metadata", []byte(r.Meta)))
}

func checkReclaim(policy pb.ReclaimPolicy, grace int64) error {
	switch {
	case policy < pb.ReclaimPolicy_RECLAIM_POLICY_AT_DEADLINE || policy > pb.ReclaimPolicy_RECLAIM_POLICY_NEVER:
		return Invalid("", "the policy %d is unknown: give 0 (at-deadline), 1 (on-next-acquire) or 2 (never)", policy)
	case grace != 0 && policy != pb.ReclaimPolicy_RECLAIM_POLICY_ON_NEXT_ACQUIRE:
		return Invalid("", "a grace_ms of %d without the policy on-next-acquire: nothing is reclaimed on demand", grace)
	}
	_, err := CheckSpan("a grace_ms", grace, MaxTTL)
	return err
}

// opening is the command that opens a lease. Everybody gets a name, so that
// a caller that finds something taken is told the holder. A call with a key and a number of
// its own leaves its print in the lease, by which it is known when it comes again.
func (g *Gateway) opening(who *caller, r *pb.OpenRequest, number int64) core.Command {
	ttl, _ := checkTTL(r.TtlMs, g.s.MinTTL())
	c := core.Command{Op: core.OpOpen, Flags: core.Fresh, Namespace: who.namespace, TTL: int64(ttl), Owner: r.Owner, Meta: r.Meta,
		Policy: core.Policy(r.Policy), Grace: r.GraceMs * int64(time.Millisecond)}
	if c.Owner == "" {
		c.Owner = leaseName(number)
	}
	if who.key != "" && r.LeaseId != 0 && r.Meta == "" {
		sum := sha256.Sum256([]byte(fmt.Sprintf("holdfast open %d %s\x00%s", ttl, c.Owner, who.key)))
		c.Meta = "idempotency " + hex.EncodeToString(sum[:12])
	}
	return c
}

// leaseName is what the holder is called that has no other name than its lease.
func leaseName(number int64) string { return fmt.Sprintf("lease %d", number) }

func (g *Gateway) openFrame(ctx context.Context, id core.SessionID, c core.Command) (core.Reply, error) {
	return g.submit(ctx, &core.Frame{Session: id, Mark: 1, Commands: []core.Command{c}})
}

// reopen answers a call for a lease that is there: if the same call has opened it,
// with its idempotency key, it is renewed.
func (g *Gateway) reopen(ctx context.Context, id core.SessionID, c core.Command, number int64, r *pb.OpenRequest) (core.Reply, error) {
	var info core.SessionInfo
	err := g.look(ctx, func(m *core.Machine, _ int64) { info, _ = m.Session(id) })
	key := callerOf(ctx).key
	same := key != "" && info.Owner == c.Owner && info.Meta == c.Meta && info.TTL == c.TTL && info.Policy == c.Policy && info.Grace == c.Grace && (r.LeaseId == 0 || r.Meta == "")
	switch {
	case err != nil:
		return core.Reply{}, err
	case same:
		c.Flags &^= core.Fresh
		return g.openFrame(ctx, id, c)
	case key != "" && r.LeaseId == 0:
		return core.Reply{}, errOtherRequest()
	}
	return core.Reply{}, driver.Errorf("", "", fs.ErrExist, "lease %d is in use: choose another number, or 0 to have one chosen; its owner keeps it alive without granting it again", number)
}

// LeaseInfo tells about a lease of the caller's namespace.
func (g *Gateway) LeaseInfo(ctx context.Context, number int64, after string, most int) (driver.SessionInfo, error) {
	if number <= 0 {
		return driver.SessionInfo{}, Invalid("", "lease %d: numbers of leases are positive", number)
	}
	ns := callerOf(ctx).namespace
	info, err := g.s.SessionInfo(ctx, ns, &driver.SessionInfoRequest{ID: driver.SessionID(sessionOf(ns, number)), After: after, Max: most})
	if errors.Is(err, fs.ErrNotExist) {
		err = noLease(number)
	}
	return info, err
}

// keepLease renews a lease of the caller's namespace.
func (g *Gateway) keepLease(ctx context.Context, number int64, ttl time.Duration) (time.Duration, error) {
	if number <= 0 {
		return 0, Invalid("", "lease %d: numbers of leases are positive", number)
	}
	ns := callerOf(ctx).namespace
	r, err := g.renew(ctx, sessionOf(ns, number), ttl)
	switch {
	case err == nil && r.Deadline == 0:
		err = noLease(number)
	case err == nil:
		g.used(ns, number)
	}
	return convert.Left(r.Now, r.Deadline), err
}

// EndLease ends a lease with all that hangs on it.
func (g *Gateway) EndLease(ctx context.Context, number int64) (*pb.Header, error) {
	if number <= 0 {
		return nil, Invalid("", "lease %d: numbers of leases are positive", number)
	}
	ns := callerOf(ctx).namespace
	id := sessionOf(ns, number)
	known := false
	if err := g.look(ctx, func(m *core.Machine, _ int64) { _, known = m.Session(id) }); err != nil {
		return nil, err
	}
	if !known {
		return nil, noLease(number)
	}
	reply, err := g.submit(ctx, &core.Frame{Session: id, Mark: 1, Commands: []core.Command{{Op: core.OpEnd, Namespace: ns}}})
	if err != nil {
		return nil, err
	}
	return g.Header(ctx, reply.Results[0].Revision), nil
}
