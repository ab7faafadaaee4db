package world

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/wire"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// tenant is another namespace, with names that the first has too.
const tenant = "tenant"

// mostHolds is how many claims one session may have in a world.
const mostHolds = 24

// keeper is a session that keeps what it holds past its deadline.
type keeper struct {
	*worker
	x     *plain
	ns    string
	lease int64
}

// kept opens such a session, takes a lock on it, falls silent for a while, and comes back. As
// long as it is late it is granted nothing, and at no time has it more than it may.
func (k *worker) kept(x *plain) {
	s := &keeper{worker: k, x: x, ns: []string{"default", tenant}[k.rng.IntN(2)]}
	ttl := k.ttl()
	if !s.open(ttl) {
		return
	}
	defer s.end()
	if k.chance(0.3) {
		s.greedy()
	}
	name := fmt.Sprintf("kept/%d", k.rng.IntN(2))
	g, a := s.lock("lock on a kept session", name, k.between(time.Second, 10*time.Second))
	if a != done {
		return
	}
	b := &belief{owner: k.party.String(), token: g.token, exclusive: true, holds: g.holds}
	k.w.ledger.believe(s.ns+"/"+name, b)
	silent := k.between(0, time.Second)
	if k.chance(0.5) {
		silent += ttl + k.between(0, 2*time.Second)
	}
	_ = sleep(k.w.ctx, silent)
	k.w.ledger.doubt(s.ns+"/"+name, b)
	s.asks(name, g.token)
}

// call is one in the namespace of the session.
func (s *keeper) call(command, name string, limit time.Duration, f func(ctx context.Context) error) answer {
	c := s.w.begin("grpc", command, name, limit)
	return c.answered(f(metadata.AppendToOutgoingContext(c.ctx, wire.NamespaceMetadata(s.ns)...)))
}

func (s *keeper) open(ttl time.Duration) bool {
	r := &pb.OpenRequest{TtlMs: ttl.Milliseconds(), Owner: s.party.owner(), Policy: pb.ReclaimPolicy_RECLAIM_POLICY_NEVER}
	if s.chance(0.7) {
		r.Policy, r.GraceMs = pb.ReclaimPolicy_RECLAIM_POLICY_ON_NEXT_ACQUIRE, s.between(0, 2*time.Second).Milliseconds()
	}
	return s.call("open kept session", "", 30*time.Second, func(ctx context.Context) error {
		o, err := pb.NewSessionServiceClient(s.x.conn()).Open(ctx, r)
		s.lease = o.GetLeaseId()
		return wire.Error(err)
	}) == done
}

// lock takes a lock on the session, or tries to if it has no time to wait.
func (s *keeper) lock(command, name string, limit time.Duration) (g *holding, a answer) {
	a = s.call(command, name, max(limit, 5*time.Second), func(ctx context.Context) (err error) {
		g, err = s.x.acquire(ctx, want{kind: mutex, name: name, lease: s.lease, try: limit == 0})
		return err
	})
	return g, a
}

// asks asks for one lock more, and then revives the session, or not.
func (s *keeper) asks(name string, token uint64) {
	late := s.w.truth.wasLate(s.ns, name, token)
	more := fmt.Sprintf("kept/more-%d", s.lease)
	if _, a := s.lock("ask beside what is kept", more, 0); late {
		s.w.count("asked while late")
		if a == done {
			s.w.violate("%s: lease %d is granted %s, though it is late: what it holds by %d is stale", s.party, s.lease, more, token)
		}
	}
	if s.chance(0.5) {
		s.call("keep kept session", "", 10*time.Second, func(ctx context.Context) error {
			_, err := pb.NewSessionServiceClient(s.x.conn()).Keep(ctx, &pb.KeepRequest{LeaseId: s.lease})
			return wire.Error(err)
		})
	}
}

// greedy asks for more locks than the session may have.
func (s *keeper) greedy() {
	bounded := s.w.counted("kind "+driver.ErrExhausted.Error()) > 0 // the leader has put its quotas into the log
	granted := 0
	for i := range mostHolds + 2 {
		if _, a := s.lock("ask for more than may be", fmt.Sprintf("kept/%d-%d", s.lease, i), 0); a == done {
			granted++
		}
	}
	if bounded && granted > mostHolds {
		s.w.violate("%s: lease %d is granted %d locks of %d that it may have", s.party, s.lease, granted, mostHolds)
	}
}

// end ends the session, as often as it takes: nothing else frees what one holds that is
// never reclaimed.
func (s *keeper) end() {
	for over := false; !over; {
		s.call("end kept session", "", 10*time.Second, func(ctx context.Context) error {
			_, err := pb.NewSessionServiceClient(s.x.conn()).End(ctx, &pb.EndRequest{LeaseId: s.lease})
			err = wire.Error(err)
			over = err == nil || errors.Is(err, fs.ErrNotExist)
			return err
		})
		time.Sleep(s.between(time.Millisecond, time.Second))
	}
}

// wasLate reports whether it was told that the holder by a token is late.
func (t *truth) wasLate(ns, name string, token uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.log {
		if e := &t.log[i]; e.Verb == core.VerbStale && e.Namespace == ns && e.Name == name && e.Token == token {
			return true
		}
	}
	return false
}
