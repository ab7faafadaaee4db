package gateway

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/core"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// Locks is pb.LockService.
type Locks struct {
	*Gateway
}

func (s Locks) Lock(ctx context.Context, r *pb.LockRequest) (*pb.LockResponse, error) {
	h, err := s.hold(ctx, core.Want{Name: r.Name, Kind: core.Mutex}, &pb.Terms{
		LeaseId: r.LeaseId, TimeoutMs: r.TimeoutMs, TtlMs: r.TtlMs, Owner: r.Owner, Metadata: r.Metadata,
	})
	if notAcquired(err) && r.TimeoutMs != nil {
		return &pb.LockResponse{Header: s.headerNow(ctx)}, nil
	}
	if err != nil {
		return nil, Named(err, "lock", r.Name)
	}
	return &pb.LockResponse{
		Header: s.Header(ctx, h.revision), Key: keyOf(r.Name, h.lease), FencingToken: int64(h.token), Acquired: true,
		LeaseId: h.lease, TtlMs: h.left.Milliseconds(),
	}, nil
}

func (s Locks) TryLock(ctx context.Context, r *pb.TryLockRequest) (*pb.TryLockResponse, error) {
	h, err := s.hold(ctx, core.Want{Name: r.Name, Kind: core.Mutex}, &pb.Terms{LeaseId: r.LeaseId, TimeoutMs: new(int64), TtlMs: r.TtlMs, Owner: r.Owner, Metadata: r.Metadata})
	if notAcquired(err) {
		return &pb.TryLockResponse{Header: s.headerNow(ctx)}, nil
	}
	if err != nil {
		return nil, Named(err, "try lock", r.Name)
	}
	return &pb.TryLockResponse{
		Header: s.Header(ctx, h.revision), Key: keyOf(r.Name, h.lease), FencingToken: int64(h.token), Acquired: true,
		LeaseId: h.lease, TtlMs: h.left.Milliseconds(),
	}, nil
}

// notAcquired: somebody else has it, also at the end of the time given.
func notAcquired(err error) bool {
	return errors.Is(err, driver.ErrHeld) || errors.Is(err, errTimedOut)
}

// Named adds what a call was about to its error.
func Named(err error, op, name string) error {
	e, ok := errors.AsType[*driver.Error](err)
	if !ok || e.Op != "" {
		return err
	}
	c := *e
	c.Op, c.Name = op, Clip(name)
	return &c
}

// Clip shortens what is echoed: nobody reads more, and a status has to fit into a
// header.
func Clip(name string) string {
	if len(name) <= MaxName {
		return name
	}
	return strings.ToValidUTF8(name[:MaxName], "") + "…"
}

// keyOf is the key of a hold.
func keyOf(name string, lease int64) string { return fmt.Sprintf("%s/%x", name, lease) }

// cutKey is the reverse of keyOf.
func cutKey(key string) (name string, lease int64, err error) {
	i := strings.LastIndexByte(key, '/')
	if i < 0 {
		return "", 0, Invalid(key, "the key of a hold is its name, a slash, and its lease in hexadecimal digits")
	}
	lease, err = strconv.ParseInt(key[i+1:], 16, 64)
	if err != nil || lease <= 0 {
		return "", 0, Invalid(key, "the key of a hold ends with its lease in hexadecimal digits")
	}
	return key[:i], lease, nil
}

func (s Locks) Unlock(ctx context.Context, r *pb.UnlockRequest) (*pb.UnlockResponse, error) {
	name, token := r.Name, uint64(max(r.FencingToken, 0))
	if r.Key != "" {
		if r.Name != "" || r.FencingToken != 0 {
			return nil, Named(Invalid("", "key and name or fencing_token are both given: give the key, or name and token"), "unlock", r.Key)
		}
		var err error
		if name, token, err = s.tokenOf(ctx, r.Key); err != nil {
			return nil, Named(err, "unlock", r.Key)
		}
	}
	h, err := s.GiveBack(ctx, name, token, core.Mutex)
	if err != nil {
		return nil, Named(err, "unlock", name)
	}
	return &pb.UnlockResponse{Header: h}, nil
}

// tokenOf finds the token of the hold with that key.
func (g *Gateway) tokenOf(ctx context.Context, key string) (name string, token uint64, err error) {
	name, number, err := cutKey(key)
	if err != nil {
		return "", 0, err
	}
	ns := callerOf(ctx).namespace
	err = g.look(ctx, func(m *core.Machine, _ int64) {
		r, _ := m.InspectPage(ns, name, core.Cursor{}, 1) // a lock has one holder
		for i := range r.Holders {
			if r.Holders[i].Session == sessionOf(ns, number) {
				token = r.Holders[i].Token
			}
		}
	})
	if err == nil && token == 0 {
		err = driver.Errorf("", key, driver.ErrLost, "lease %d does not hold it (any more): it may be another's by now", number)
	}
	return name, token, err
}

func (s Locks) LeaseGrant(ctx context.Context, r *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	if r.Ttl <= 0 || r.Ttl > int64(MaxTTL/time.Second) {
		return nil, Named(Invalid("", "a ttl of %d s is out of range: give 1 to %d", r.Ttl, int64(MaxTTL/time.Second)), "grant lease", "")
	}
	o, err := s.OpenLease(ctx, &pb.OpenRequest{TtlMs: r.Ttl * 1000, LeaseId: r.Id, Owner: r.Owner, Policy: r.Policy, GraceMs: r.GraceMs})
	if err != nil {
		return nil, Named(err, "grant lease", "")
	}
	return &pb.LeaseGrantResponse{Header: o.Header, Id: o.LeaseId, Ttl: r.Ttl, Session: o.Session}, nil
}

func (s Locks) LeaseRevoke(ctx context.Context, r *pb.LeaseRevokeRequest) (*pb.LeaseRevokeResponse, error) {
	h, err := s.EndLease(ctx, r.Id)
	if err != nil {
		return nil, Named(err, "revoke lease", "")
	}
	return &pb.LeaseRevokeResponse{Header: h}, nil
}
