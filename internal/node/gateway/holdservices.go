package gateway

import (
	"context"
	"errors"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/convert"
	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/wire"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// hold acquires what a request wants. A lease that has a mutex already joins.
func (g *Gateway) hold(ctx context.Context, want core.Want, t *pb.Terms) (held, error) {
	if t == nil {
		t = &pb.Terms{}
	}
	w, err := g.requestOf(want, t)
	if err != nil {
		return held{}, err
	}
	w.reentrant = want.Kind == core.Mutex
	return g.acquire(ctx, w)
}

// Take acquires what a request wants; op is the call in errors, "": they have none yet.
func (g *Gateway) Take(ctx context.Context, op string, want core.Want, t *pb.Terms) (*pb.Header, *pb.Hold, error) {
	h, err := g.hold(ctx, want, t)
	if err != nil {
		return nil, nil, Named(err, op, want.Name)
	}
	return g.Header(ctx, h.revision), h.message(), nil
}

func (g *Gateway) back(ctx context.Context, op string, r *pb.ReleaseRequest, kinds ...core.Kind) (*pb.ReleaseResponse, error) {
	h, err := g.GiveBack(ctx, r.Name, r.Token, kinds...)
	if err != nil {
		return nil, Named(err, op, r.Name)
	}
	return &pb.ReleaseResponse{Header: h}, nil
}

// Remove deletes a name of a kind that nobody uses.
func (g *Gateway) Remove(ctx context.Context, kind core.Kind, r *pb.DeleteRequest) (*pb.DeleteResponse, error) {
	h, err := g.plainCall(ctx, "delete", core.Command{Op: core.OpDelete, Kind: kind, Name: r.Name})
	if err != nil {
		return nil, err
	}
	return &pb.DeleteResponse{Header: h}, nil
}

// plainCall runs a command and drops its result.
func (g *Gateway) plainCall(ctx context.Context, op string, c core.Command) (*pb.Header, error) {
	if err := CheckName(c.Name); err != nil {
		return nil, Named(err, op, c.Name)
	}
	r, _, err := g.do(ctx, c)
	if err != nil {
		return nil, Named(err, op, c.Name)
	}
	return g.Header(ctx, r.Revision), nil
}

// RWLocks is pb.RWLockService.
type RWLocks struct {
	*Gateway
}

func (s RWLocks) AcquireRead(ctx context.Context, r *pb.AcquireReadRequest) (*pb.AcquireReadResponse, error) {
	h, hold, err := s.Take(ctx, "acquire read", core.Want{Name: r.Name, Kind: core.RWMutex, Mode: core.Shared}, r.Terms)
	if err != nil {
		return nil, err
	}
	return &pb.AcquireReadResponse{Header: h, Hold: hold}, nil
}

func (s RWLocks) AcquireWrite(ctx context.Context, r *pb.AcquireWriteRequest) (*pb.AcquireWriteResponse, error) {
	h, hold, err := s.Take(ctx, "acquire write", core.Want{Name: r.Name, Kind: core.RWMutex}, r.Terms)
	if err != nil {
		return nil, err
	}
	return &pb.AcquireWriteResponse{Header: h, Hold: hold}, nil
}

func (s RWLocks) Release(ctx context.Context, r *pb.ReleaseRequest) (*pb.ReleaseResponse, error) {
	return s.back(ctx, "release", r, core.RWMutex)
}

func (s RWLocks) Downgrade(ctx context.Context, r *pb.DowngradeRequest) (*pb.DowngradeResponse, error) {
	res, err := s.alter(ctx, r.Name, r.Token, func(c core.ClaimInfo) core.Command {
		return core.Command{Op: core.OpDowngrade, Target: c.Seq}
	}, core.RWMutex)
	if err != nil {
		return nil, Named(err, "downgrade", r.Name)
	}
	return &pb.DowngradeResponse{Header: s.Header(ctx, res.Revision)}, nil
}

func (s RWLocks) Upgrade(ctx context.Context, r *pb.UpgradeRequest) (*pb.UpgradeResponse, error) {
	w := holdRequest{want: core.Want{Name: r.Name, Kind: core.RWMutex}}
	if err := w.patience(r.TimeoutMs); err != nil {
		return nil, Named(err, "upgrade", r.Name)
	}
	h, err := s.upgrade(ctx, &w, r.Token)
	if err != nil {
		return nil, Named(err, "upgrade", r.Name)
	}
	return &pb.UpgradeResponse{Header: s.Header(ctx, h.revision), Hold: h.message()}, nil
}

// upgrade finds the reader's lease, anew if another leader has used it.
func (s RWLocks) upgrade(ctx context.Context, w *holdRequest, token uint64) (held, error) {
	for {
		l, claim, err := s.owner(ctx, w.want.Name, token, core.RWMutex)
		if err != nil {
			return held{}, err
		}
		h, err := l.upgrade(ctx, w, claim.Seq)
		s.release(l)
		if err != errOutOfStep {
			return h, err
		}
	}
}

// upgrade makes a reader the writer. Without time to wait it is given up at once;
// the cancel leaves the reader as it was.
func (l *lease) upgrade(ctx context.Context, w *holdRequest, target uint64) (held, error) {
	defer l.g.work.begin()()
	c := core.Command{Op: core.OpUpgrade, Target: target, Wait: int64(w.wait)}
	if w.try {
		c.Wait = 1
	}
	f, err := l.numbered([]core.Command{c})
	if err != nil {
		return held{}, err
	}
	seq := f.Commands[len(f.Commands)-1].Seq
	w.lease = l.number // not of its own: nobody asked for a renewal
	reply, results, err := l.send(ctx, &f, 1)
	if err != nil {
		l.unanswered(seq, err)
		return held{}, err
	}
	r := results[0]
	switch {
	case r.Code == core.CodeQueued:
		return l.await(ctx, w, &r, l.grantsNow())
	case outOfStep(r):
		l.settle(seq)
		return held{}, errOutOfStep
	case r.Code != core.CodeOK:
		l.settle(seq)
		return held{}, convert.RefusalOf(core.OpUpgrade, r.Code, r.Text)
	}
	l.settle(seq)
	return held{name: w.want.Name, token: r.Token, lease: l.number, revision: r.Revision, left: convert.Left(reply.Now, reply.Deadline), ends: convert.Left(reply.Now, r.Deadline)}, nil
}

// Semaphores is pb.SemaphoreService.
type Semaphores struct {
	*Gateway
}

func (s Semaphores) Acquire(ctx context.Context, r *pb.SemaphoreAcquireRequest) (*pb.SemaphoreAcquireResponse, error) {
	weight, err := AtLeastOne("weight", r.Weight)
	if err == nil && r.Limit < 0 {
		err = Invalid("", "limit %d is negative", r.Limit)
	}
	if err != nil {
		return nil, Named(err, "acquire", r.Name)
	}
	want := core.Want{Name: r.Name, Kind: core.Semaphore, Mode: core.Shared, Weight: weight, Limit: r.Limit}
	h, hold, err := s.Take(ctx, "acquire", want, r.Terms)
	if err != nil {
		return nil, err
	}
	return &pb.SemaphoreAcquireResponse{Header: h, Hold: hold}, nil
}

func (s Semaphores) Release(ctx context.Context, r *pb.ReleaseRequest) (*pb.ReleaseResponse, error) {
	return s.back(ctx, "release", r, core.Semaphore)
}

func (s Semaphores) Resize(ctx context.Context, r *pb.ResizeRequest) (*pb.ResizeResponse, error) {
	h, err := s.plainCall(ctx, "resize", core.Command{Op: core.OpResize, Name: r.Name, Limit: r.Limit})
	if err != nil {
		return nil, err
	}
	return &pb.ResizeResponse{Header: h}, nil
}

func (s Semaphores) Delete(ctx context.Context, r *pb.DeleteRequest) (*pb.DeleteResponse, error) {
	return s.Remove(ctx, core.Semaphore, r)
}

// Elections is pb.ElectionService.
type Elections struct {
	*Gateway
}

func (s Elections) Campaign(ctx context.Context, r *pb.CampaignRequest) (*pb.CampaignResponse, error) {
	t := &pb.Terms{
		LeaseId: r.GetTerms().GetLeaseId(), TtlMs: r.GetTerms().GetTtlMs(), Owner: r.GetTerms().GetOwner(), Metadata: r.Value,
		MaxHoldMs: r.GetTerms().GetMaxHoldMs(), MinHoldMs: r.GetTerms().GetMinHoldMs(), DelayMs: r.GetTerms().GetDelayMs(),
	}
	if r.Terms != nil {
		t.TimeoutMs = r.Terms.TimeoutMs
	}
	if len(r.GetTerms().GetMetadata()) > 0 {
		return nil, Named(Invalid("", "a candidate has a value instead of metadata"), "campaign", r.Name)
	}
	h, hold, err := s.Take(ctx, "campaign", core.Want{Name: r.Name, Kind: core.Election}, t)
	if err != nil {
		return nil, err
	}
	return &pb.CampaignResponse{Header: h, Hold: hold}, nil
}

func (s Elections) Proclaim(ctx context.Context, r *pb.ProclaimRequest) (*pb.ProclaimResponse, error) {
	if err := checkBytes("the value", r.Value); err != nil {
		return nil, Named(err, "proclaim", r.Name)
	}
	res, err := s.alter(ctx, r.Name, r.Token, func(c core.ClaimInfo) core.Command {
		return core.Command{Op: core.OpProclaim, Target: c.Seq, Value: r.Value}
	}, core.Election)
	if err != nil {
		return nil, Named(err, "proclaim", r.Name)
	}
	return &pb.ProclaimResponse{Header: s.Header(ctx, res.Revision)}, nil
}

func (s Elections) Resign(ctx context.Context, r *pb.ReleaseRequest) (*pb.ReleaseResponse, error) {
	return s.back(ctx, "resign", r, core.Election)
}

func (s Elections) HandOver(ctx context.Context, r *pb.HandOverRequest) (*pb.HandOverResponse, error) {
	if err := checkOwner(r.Owner); err != nil {
		return nil, Named(err, "hand over", r.Name)
	}
	res, err := s.alter(ctx, r.Name, r.Token, func(c core.ClaimInfo) core.Command {
		return core.Command{Op: core.OpHandOver, Target: c.Seq, Owner: r.Owner}
	}, core.Election)
	if err != nil {
		return nil, Named(err, "hand over", r.Name)
	}
	return &pb.HandOverResponse{Header: s.Header(ctx, res.Revision)}, nil
}

func (s Elections) Leader(ctx context.Context, r *pb.LeaderRequest) (*pb.LeaderResponse, error) {
	if err := CheckName(r.Name); err != nil {
		return nil, Named(err, "leader", r.Name)
	}
	out := &pb.LeaderResponse{}
	ns := callerOf(ctx).namespace
	var revision uint64
	err := s.look(ctx, func(m *core.Machine, _ int64) {
		revision = m.Revision()
		res, _ := m.InspectPage(ns, r.Name, core.Cursor{}, 1)
		if res.Kind == core.Election && len(res.Holders) > 0 {
			h := &res.Holders[0]
			out.Elected, out.Owner, out.Value, out.Token = true, wire.Text(h.Owner), h.Value, h.Token
			out.LeaseId, _ = leaseOf(ns, h.Session)
		}
	})
	if err != nil {
		return nil, Named(err, "leader", r.Name)
	}
	out.Header = s.Header(ctx, revision)
	return out, nil
}

// Latches is pb.LatchService, Barriers pb.BarrierService.
type Latches struct {
	*Gateway
}

type Barriers struct {
	*Gateway
}

func (s Latches) CountDown(ctx context.Context, r *pb.CountDownRequest) (*pb.CountDownResponse, error) {
	if err := CheckName(r.Name); err != nil || r.By < 0 || r.Count < 0 {
		if err == nil {
			err = Invalid("", "a latch cannot count down from %d by %d", r.Count, r.By)
		}
		return nil, Named(err, "count down", r.Name)
	}
	c := core.Command{Op: core.OpCountDown, Name: r.Name, A: uint64(r.By), Limit: r.Count}
	run := s.do
	if r.By == 0 {
		run = s.read
	}
	res, _, err := run(ctx, c)
	if err != nil {
		return nil, Named(err, "count down", r.Name)
	}
	return &pb.CountDownResponse{Header: s.Header(ctx, res.Revision), Left: int64(res.Number)}, nil
}

// passes waits for something that is not kept: its lease ends at once, unless a call with
// the same key may come for the answer.
func (g *Gateway) passes(ctx context.Context, op string, want core.Want, timeout *int64) (*pb.Header, error) {
	h, hold, err := g.Take(ctx, op, want, &pb.Terms{TimeoutMs: timeout})
	if err != nil {
		return nil, err
	}
	if callerOf(ctx).key == "" {
		_, _ = g.EndLease(ctx, hold.LeaseId) // else it ends by itself
	}
	return h, nil
}

func (s Latches) Wait(ctx context.Context, r *pb.LatchWaitRequest) (*pb.LatchWaitResponse, error) {
	if r.Count < 0 {
		return nil, Named(Invalid("", "a latch cannot count down from %d", r.Count), "wait", r.Name)
	}
	h, err := s.passes(ctx, "wait", core.Want{Name: r.Name, Kind: core.Latch, Mode: core.Shared, Limit: r.Count}, r.TimeoutMs)
	if err != nil {
		return nil, err
	}
	return &pb.LatchWaitResponse{Header: h}, nil
}

func (s Latches) Delete(ctx context.Context, r *pb.DeleteRequest) (*pb.DeleteResponse, error) {
	return s.Remove(ctx, core.Latch, r)
}

func (s Barriers) Arrive(ctx context.Context, r *pb.ArriveRequest) (*pb.ArriveResponse, error) {
	if r.Parties < 0 {
		return nil, Named(Invalid("", "%d parties", r.Parties), "arrive", r.Name)
	}
	h, err := s.arrive(ctx, core.Want{Name: r.Name, Kind: core.Barrier, Mode: core.Shared, Limit: r.Parties}, r.TimeoutMs)
	if err != nil {
		return nil, err
	}
	return &pb.ArriveResponse{Header: h}, nil
}

// arrive makes the shortest wait of one try: a try of the machine never counts as a party, so
// that the last to come would not open the barrier.
func (s Barriers) arrive(ctx context.Context, want core.Want, timeout *int64) (*pb.Header, error) {
	if timeout == nil || *timeout != 0 {
		return s.passes(ctx, "arrive", want, timeout)
	}
	h, err := s.passes(ctx, "arrive", want, new(int64(1)))
	if e, ok := errors.AsType[*driver.Error](err); ok && e.Err == errTimedOut {
		s.absent(ctx, e)
	}
	return h, err
}

// absent makes a wait that has timed out a try that was refused, with how many wait, unless the
// group grants nothing.
func (s Barriers) absent(ctx context.Context, e *driver.Error) {
	_ = s.look(ctx, func(m *core.Machine, _ int64) {
		if m.Frozen() {
			return
		}
		res, _ := m.InspectPage(callerOf(ctx).namespace, e.Name, core.Cursor{}, 1)
		e.Kind, e.Waiting, e.Err = driver.ErrHeld, res.Waiting, errAbsent
	})
}

// errAbsent: others have to come before a barrier opens.
var errAbsent = errors.New("not all parties are there")

func (s Barriers) Delete(ctx context.Context, r *pb.DeleteRequest) (*pb.DeleteResponse, error) {
	return s.Remove(ctx, core.Barrier, r)
}
