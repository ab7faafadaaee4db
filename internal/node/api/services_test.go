package api_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

func TestRWLocks(t *testing.T) {
	r := serve(t)
	c := pb.NewRWLockServiceClient(r.conn)
	try := &pb.Terms{TimeoutMs: proto.Int64(0)}
	a := must[*pb.AcquireReadResponse](t)(c.AcquireRead(r.ctx, &pb.AcquireReadRequest{Name: "cfg", Terms: try})).Hold
	b := must[*pb.AcquireReadResponse](t)(c.AcquireRead(r.ctx, &pb.AcquireReadRequest{Name: "cfg", Terms: try})).Hold
	_, err := c.AcquireWrite(r.ctx, &pb.AcquireWriteRequest{Name: "cfg", Terms: try})
	if f := wantCode(t, err, codes.Aborted); f.Kind != "held" || len(f.Holders) != 2 || f.RetryAfterMs == 0 {
		t.Errorf("writing beside two readers: %v", f)
	}
	must[*pb.ReleaseResponse](t)(c.Release(r.ctx, &pb.ReleaseRequest{Name: "cfg", Token: b.Token}))
	w := must[*pb.UpgradeResponse](t)(c.Upgrade(r.ctx, &pb.UpgradeRequest{Name: "cfg", Token: a.Token})).Hold
	if w.Token <= b.Token || w.LeaseId != a.LeaseId {
		t.Errorf("upgraded %v to %v", a, w)
	}
	_, err = c.AcquireRead(r.ctx, &pb.AcquireReadRequest{Name: "cfg", Terms: try})
	wantCode(t, err, codes.Aborted)
	must[*pb.DowngradeResponse](t)(c.Downgrade(r.ctx, &pb.DowngradeRequest{Name: "cfg", Token: w.Token}))
	d := must[*pb.AcquireReadResponse](t)(c.AcquireRead(r.ctx, &pb.AcquireReadRequest{Name: "cfg", Terms: try})).Hold
	for _, token := range []uint64{w.Token, d.Token} {
		must[*pb.ReleaseResponse](t)(c.Release(r.ctx, &pb.ReleaseRequest{Name: "cfg", Token: token}))
	}
	_, err = c.Release(r.ctx, &pb.ReleaseRequest{Name: "cfg", Token: w.Token})
	wantCode(t, err, codes.FailedPrecondition)
	r.holders("cfg", 0)
}

// An upgrade waits for the other readers; one that gives up stays a reader.
func TestUpgradeWaits(t *testing.T) {
	r := serve(t)
	c := pb.NewRWLockServiceClient(r.conn)
	read := func() *pb.Hold {
		return must[*pb.AcquireReadResponse](t)(c.AcquireRead(r.ctx, &pb.AcquireReadRequest{Name: "cfg"})).Hold
	}
	a, b := read(), read()
	_, err := c.Upgrade(r.ctx, &pb.UpgradeRequest{Name: "cfg", Token: a.Token, TimeoutMs: proto.Int64(0)})
	wantCode(t, err, codes.DeadlineExceeded)
	r.holders("cfg", 2)
	got := make(chan *pb.UpgradeResponse, 1)
	go func() {
		w, err := c.Upgrade(r.ctx, &pb.UpgradeRequest{Name: "cfg", Token: a.Token})
		if err != nil {
			t.Error(err)
		}
		got <- w
	}()
	r.waiters("cfg", 1)
	must[*pb.ReleaseResponse](t)(c.Release(r.ctx, &pb.ReleaseRequest{Name: "cfg", Token: b.Token}))
	if w := <-got; w.GetHold().GetToken() <= b.Token {
		t.Errorf("upgraded to %v", w)
	}
}

func TestSemaphores(t *testing.T) {
	r := serve(t)
	c := pb.NewSemaphoreServiceClient(r.conn)
	take := func(weight, limit int64) (*pb.SemaphoreAcquireResponse, error) {
		return c.Acquire(r.ctx, &pb.SemaphoreAcquireRequest{Name: "gpu", Weight: &weight, Limit: limit, Terms: &pb.Terms{TimeoutMs: proto.Int64(0)}})
	}
	_, err := take(1, 0)
	wantCode(t, err, codes.NotFound)
	a := must[*pb.SemaphoreAcquireResponse](t)(take(3, 4)).Hold
	_, err = take(2, 0)
	wantCode(t, err, codes.Aborted)
	_, err = take(1, 5)
	if f := wantCode(t, err, codes.Aborted); f.Kind != "conflict" {
		t.Errorf("another limit: %v", f)
	}
	_, err = take(-1, 4)
	wantCode(t, err, codes.InvalidArgument)
	_, err = take(5, 0)
	wantCode(t, err, codes.InvalidArgument)
	must[*pb.ResizeResponse](t)(c.Resize(r.ctx, &pb.ResizeRequest{Name: "gpu", Limit: 5}))
	b := must[*pb.SemaphoreAcquireResponse](t)(take(2, 0)).Hold
	_, err = c.Delete(r.ctx, &pb.DeleteRequest{Name: "gpu"})
	wantCode(t, err, codes.Aborted)
	for _, token := range []uint64{a.Token, b.Token} {
		must[*pb.ReleaseResponse](t)(c.Release(r.ctx, &pb.ReleaseRequest{Name: "gpu", Token: token}))
	}
	must[*pb.DeleteResponse](t)(c.Delete(r.ctx, &pb.DeleteRequest{Name: "gpu"}))
}

// A call that waits for more than a semaphore has since it was made smaller is told so, and not
// to try again.
func TestSemaphoreMadeTooSmall(t *testing.T) {
	r := serve(t)
	c := pb.NewSemaphoreServiceClient(r.conn)
	want := &pb.SemaphoreAcquireRequest{Name: "gpu", Weight: proto.Int64(3), Limit: 4}
	must[*pb.SemaphoreAcquireResponse](t)(c.Acquire(r.ctx, want))
	denied := make(chan error, 1)
	go func() {
		_, err := c.Acquire(r.as("idempotency-key", "k"), want)
		denied <- err
	}()
	r.waiters("gpu", 1)
	must[*pb.ResizeResponse](t)(c.Resize(r.ctx, &pb.ResizeRequest{Name: "gpu", Limit: 2}))
	first := <-denied
	_, second := c.Acquire(r.as("idempotency-key", "k"), want)
	for _, err := range []error{first, second} {
		f := wantCode(t, err, codes.InvalidArgument)
		if !strings.Contains(f.Cause, "made smaller") || f.RetryAfterMs != 0 || len(f.Holders) > 0 || !f.NotDone {
			t.Errorf("denied with %v", f)
		}
	}
}

func TestElections(t *testing.T) {
	r := serve(t)
	c := pb.NewElectionServiceClient(r.conn)
	if l := must[*pb.LeaderResponse](t)(c.Leader(r.ctx, &pb.LeaderRequest{Name: "e"})); l.Elected {
		t.Fatalf("nobody ran: %v", l)
	}
	a := must[*pb.CampaignResponse](t)(c.Campaign(r.ctx, &pb.CampaignRequest{Name: "e", Value: []byte("a:1"), Terms: &pb.Terms{Owner: "a"}})).Hold
	must[*pb.ProclaimResponse](t)(c.Proclaim(r.ctx, &pb.ProclaimRequest{Name: "e", Token: a.Token, Value: []byte("a:2")}))
	l := must[*pb.LeaderResponse](t)(c.Leader(r.ctx, &pb.LeaderRequest{Name: "e"}))
	if !l.Elected || l.Owner != "a" || string(l.Value) != "a:2" || l.Token != a.Token || l.LeaseId != a.LeaseId {
		t.Errorf("leader %v", l)
	}
	got := make(chan *pb.CampaignResponse, 2)
	for i, owner := range []string{"b", "c"} {
		go func() {
			x, err := c.Campaign(r.ctx, &pb.CampaignRequest{Name: "e", Terms: &pb.Terms{Owner: owner}})
			if err != nil {
				t.Error(err)
			}
			got <- x
		}()
		r.waiters("e", i+1)
	}
	_, err := c.HandOver(r.ctx, &pb.HandOverRequest{Name: "e", Token: a.Token, Owner: "nobody"})
	wantCode(t, err, codes.NotFound)
	must[*pb.HandOverResponse](t)(c.HandOver(r.ctx, &pb.HandOverRequest{Name: "e", Token: a.Token, Owner: "c"}))
	successor := (<-got).GetHold()
	if l := must[*pb.LeaderResponse](t)(c.Leader(r.ctx, &pb.LeaderRequest{Name: "e"})); l.Owner != "c" {
		t.Errorf("leader %v", l)
	}
	must[*pb.ReleaseResponse](t)(c.Resign(r.ctx, &pb.ReleaseRequest{Name: "e", Token: successor.GetToken()}))
	<-got
	_, err = c.Proclaim(r.ctx, &pb.ProclaimRequest{Name: "e", Token: a.Token})
	wantCode(t, err, codes.FailedPrecondition)
}

func TestLatchesAndBarriers(t *testing.T) {
	r := serve(t)
	c := pb.NewLatchServiceClient(r.conn)
	opened := make(chan error, 2)
	go func() {
		_, err := c.Wait(r.ctx, &pb.LatchWaitRequest{Name: "l", Count: 2})
		opened <- err
	}()
	r.waiters("l", 1)
	_, err := c.Wait(r.ctx, &pb.LatchWaitRequest{Name: "l", TimeoutMs: proto.Int64(0)})
	wantCode(t, err, codes.Aborted)
	for left := int64(1); left >= 0; left-- {
		if d := must[*pb.CountDownResponse](t)(c.CountDown(r.ctx, &pb.CountDownRequest{Name: "l", By: 1})); d.Left != left {
			t.Errorf("%d left, want %d", d.Left, left)
		}
	}
	if err := <-opened; err != nil {
		t.Error(err)
	}
	if d := must[*pb.CountDownResponse](t)(c.CountDown(r.ctx, &pb.CountDownRequest{Name: "l"})); d.Left != 0 {
		t.Errorf("%d left", d.Left)
	}
	_, err = c.CountDown(r.ctx, &pb.CountDownRequest{Name: "l", By: -1})
	wantCode(t, err, codes.InvalidArgument)
	must[*pb.DeleteResponse](t)(c.Delete(r.ctx, &pb.DeleteRequest{Name: "l"}))

	b := pb.NewBarrierServiceClient(r.conn)
	for range 2 {
		go func() {
			_, err := b.Arrive(r.ctx, &pb.ArriveRequest{Name: "b", Parties: 2})
			opened <- err
		}()
	}
	if err := errors.Join(<-opened, <-opened); err != nil {
		t.Error(err)
	}
	must[*pb.DeleteResponse](t)(b.Delete(r.ctx, &pb.DeleteRequest{Name: "b"}))
}

// One try at a barrier is a party like any other: the last opens it, and one that comes before is
// refused, and gone.
func TestBarrierTries(t *testing.T) {
	r := serve(t)
	b := pb.NewBarrierServiceClient(r.conn)
	try := &pb.ArriveRequest{Name: "b", TimeoutMs: proto.Int64(0)}
	opened := make(chan error, 2)
	for n := range 2 {
		go func() {
			_, err := b.Arrive(r.ctx, &pb.ArriveRequest{Name: "b", Parties: 3})
			opened <- err
		}()
		r.waiters("b", n+1)
		if n == 0 {
			_, err := b.Arrive(r.ctx, try)
			if f := wantCode(t, err, codes.Aborted); f.Kind != "held" || f.Waiting != 1 || !f.NotDone {
				t.Errorf("the second of three: %v", f)
			}
			r.waiters("b", 1)
		}
	}
	must[*pb.ArriveResponse](t)(b.Arrive(r.ctx, try))
	if err := errors.Join(<-opened, <-opened); err != nil {
		t.Error(err)
	}
	f := r.want(409, "POST", "/v1/barriers/b:arrive", `{"timeout_ms":0}`)
	if f["kind"] != "held" || f["not_done"] != true {
		t.Errorf("REST: the first of three: %v", f)
	}
}

func TestCounters(t *testing.T) {
	r := serve(t)
	c := pb.NewCounterServiceClient(r.conn)
	if v := must[*pb.CounterGetResponse](t)(c.Get(r.ctx, &pb.CounterGetRequest{Name: "n"})); v.Value != 0 {
		t.Errorf("an absent counter is %d", v.Value)
	}
	must[*pb.CounterAddResponse](t)(c.Add(r.ctx, &pb.CounterAddRequest{Name: "n", Amount: proto.Uint64(3)}))
	if v := must[*pb.CounterSubtractResponse](t)(c.Subtract(r.ctx, &pb.CounterSubtractRequest{Name: "n", Amount: proto.Uint64(5)})); v.Value != -2 {
		t.Errorf("3 - 5 = %d", v.Value)
	}
	_, err := c.Add(r.ctx, &pb.CounterAddRequest{Name: "n", Amount: proto.Uint64(1), Unsigned: true})
	wantCode(t, err, codes.Aborted)
	_, err = c.Add(r.ctx, &pb.CounterAddRequest{Name: "n", Amount: proto.Uint64(1 << 63)})
	wantCode(t, err, codes.InvalidArgument)
	s := must[*pb.CounterCompareAndSetResponse](t)(c.CompareAndSet(r.ctx, &pb.CounterCompareAndSetRequest{Name: "n", Expected: -2, Value: 7}))
	if !s.Swapped || s.Value != 7 {
		t.Errorf("swapped %v", s)
	}
	must[*pb.CounterSetResponse](t)(c.Set(r.ctx, &pb.CounterSetRequest{Name: "n", Value: -9}))
	if v := must[*pb.CounterGetResponse](t)(c.Get(r.ctx, &pb.CounterGetRequest{Name: "n"})); v.Value != -9 {
		t.Errorf("set to %d", v.Value)
	}
	must[*pb.CounterSetResponse](t)(c.Set(r.ctx, &pb.CounterSetRequest{Name: "u", UnsignedValue: math.MaxUint64 - 1, Unsigned: true}))
	if v := must[*pb.CounterAddResponse](t)(c.Add(r.ctx, &pb.CounterAddRequest{Name: "u", Amount: proto.Uint64(5), Unsigned: true})); v.UnsignedValue != math.MaxUint64 {
		t.Errorf("saturated at %d", v.UnsignedValue)
	}
	must[*pb.DeleteResponse](t)(c.Delete(r.ctx, &pb.DeleteRequest{Name: "n"}))
	_, err = c.Delete(r.ctx, &pb.DeleteRequest{Name: "n"})
	wantCode(t, err, codes.NotFound)
}

// Many calls at the same time are all counted, whatever their number.
func TestManyCallsAtOnce(t *testing.T) {
	r := serve(t)
	c := pb.NewCounterServiceClient(r.conn)
	const n = 3000
	failed := make(chan error, n)
	for range n {
		go func() {
			_, err := c.Add(r.ctx, &pb.CounterAddRequest{Name: "n", Amount: proto.Uint64(1)})
			failed <- err
		}()
	}
	for range n {
		if err := <-failed; err != nil {
			t.Fatal(err)
		}
	}
	if v := must[*pb.CounterGetResponse](t)(c.Get(r.ctx, &pb.CounterGetRequest{Name: "n"})); v.Value != n {
		t.Errorf("counted %d of %d", v.Value, n)
	}
}

func TestSequences(t *testing.T) {
	r := serve(t)
	c := pb.NewSequenceServiceClient(r.conn)
	if n := must[*pb.CurrentResponse](t)(c.Current(r.ctx, &pb.CurrentRequest{Name: "s", Start: proto.Uint64(10)})); n.Next != 10 {
		t.Errorf("next %d", n.Next)
	}
	a := must[*pb.ReserveResponse](t)(c.Reserve(r.ctx, &pb.ReserveRequest{Name: "s", Start: proto.Uint64(10), Count: proto.Uint64(5)}))
	b := must[*pb.ReserveResponse](t)(c.Reserve(r.ctx, &pb.ReserveRequest{Name: "s"}))
	if a.First != 10 || a.Count != 5 || b.First != 15 || b.Count != 1 {
		t.Errorf("reserved %v, then %v", a, b)
	}
	_, err := c.Reserve(r.ctx, &pb.ReserveRequest{Name: "s", Count: proto.Uint64(math.MaxUint64)})
	wantCode(t, err, codes.ResourceExhausted)
	must[*pb.DeleteResponse](t)(c.Delete(r.ctx, &pb.DeleteRequest{Name: "s"}))
}

func TestKeys(t *testing.T) {
	r := serve(t)
	c := pb.NewKVServiceClient(r.conn)
	p := must[*pb.PutResponse](t)(c.Put(r.ctx, &pb.PutRequest{Key: "a", Value: []byte("1"), ExpectRevision: proto.Uint64(0)}))
	_, err := c.Put(r.ctx, &pb.PutRequest{Key: "a", Value: []byte("2"), ExpectRevision: proto.Uint64(0)})
	wantCode(t, err, codes.Aborted)
	q := must[*pb.PutResponse](t)(c.Put(r.ctx, &pb.PutRequest{Key: "a", Value: []byte("2"), ExpectRevision: proto.Uint64(uint64(p.Header.Revision)), PrevKv: true}))
	if string(q.PrevKv.GetValue()) != "1" {
		t.Errorf("before: %v", q.PrevKv)
	}
	k := must[*pb.GetResponse](t)(c.Get(r.ctx, &pb.GetRequest{Key: "a"})).Kv
	if string(k.Value) != "2" || k.Version != 2 || k.ModRevision != uint64(q.Header.Revision) || k.CreateRevision != uint64(p.Header.Revision) {
		t.Errorf("got %v", k)
	}
	must[*pb.PutResponse](t)(c.Put(r.ctx, &pb.PutRequest{Key: "b", Value: []byte{0xff}, ExpireMs: 3_600_000}))
	l := must[*pb.RangeResponse](t)(c.Range(r.ctx, &pb.RangeRequest{Limit: 1, Descending: true, Count: true}))
	if len(l.Kvs) != 1 || l.Kvs[0].Key != "b" || !l.More || l.Next != "b" || l.Count != 2 || l.Kvs[0].ExpiresInMs == 0 {
		t.Errorf("listed %v", l)
	}
	x := must[*pb.TxnResponse](t)(c.Txn(r.ctx, &pb.TxnRequest{
		If:   []*pb.Compare{{Key: "a", Target: pb.Compare_TARGET_VALUE, Value: []byte("2")}, {Key: "c", Target: pb.Compare_TARGET_VERSION}},
		Then: []*pb.Op{{Op: &pb.Op_Put{Put: &pb.PutRequest{Key: "c"}}}, {Op: &pb.Op_Delete{Delete: &pb.KVDeleteRequest{Key: "a", PrevKv: true}}}},
	}))
	if !x.Succeeded || len(x.Results) != 2 || x.Results[1].Count != 1 || string(x.Results[1].Kvs[0].Value) != "2" {
		t.Errorf("transaction %v", x)
	}
	d := must[*pb.KVDeleteResponse](t)(c.Delete(r.ctx, &pb.KVDeleteRequest{Key: "b", Prefix: true}))
	if d.Deleted != 1 {
		t.Errorf("deleted %v", d)
	}
}

func TestBadKeys(t *testing.T) {
	r := serve(t)
	c := pb.NewKVServiceClient(r.conn)
	many := &pb.TxnRequest{}
	for range 129 {
		many.Then = append(many.Then, &pb.Op{Op: &pb.Op_Put{Put: &pb.PutRequest{Key: "k"}}})
	}
	for what, q := range map[string]*pb.TxnRequest{
		"nothing":             {},
		"too many operations": many,
		"an empty operation":  {Then: []*pb.Op{{}}},
		"no key":              {Then: []*pb.Op{{Op: &pb.Op_Put{Put: &pb.PutRequest{}}}}},
		"all keys":            {Then: []*pb.Op{{Op: &pb.Op_Delete{Delete: &pb.KVDeleteRequest{Prefix: true}}}}},
		"an unknown target":   {If: []*pb.Compare{{Key: "k", Target: 77}}, Then: many.Then[:1]},
		"a lease of a hold":   {Then: []*pb.Op{{Op: &pb.Op_Put{Put: &pb.PutRequest{Key: "k", LeaseId: 1 << 52}}}}},
		"negative expiry":     {Then: []*pb.Op{{Op: &pb.Op_Put{Put: &pb.PutRequest{Key: "k", ExpireMs: -1}}}}},
		"a condition inside":  {Then: []*pb.Op{{Op: &pb.Op_Put{Put: &pb.PutRequest{Key: "k", ExpectRevision: proto.Uint64(0)}}}}},
		"a negative limit":    {Then: []*pb.Op{{Op: &pb.Op_Range{Range: &pb.RangeRequest{Limit: -1}}}}},
	} {
		if _, err := c.Txn(r.ctx, q); err == nil {
			t.Errorf("%s was taken", what)
		} else {
			wantCode(t, err, codes.InvalidArgument)
		}
	}
	r.untouched()
	_, err := c.Put(r.ctx, &pb.PutRequest{Key: "k", LeaseId: 9})
	wantCode(t, err, codes.NotFound)
}

func TestSessions(t *testing.T) {
	r := serve(t)
	c := pb.NewSessionServiceClient(r.conn)
	o := must[*pb.OpenResponse](t)(c.Open(r.ctx, &pb.OpenRequest{TtlMs: 30_000, Owner: "me", Meta: "here"}))
	if o.LeaseId == 0 || len(o.Session) != 16 || o.TtlMs > 30_000 || o.TtlMs < 20_000 {
		t.Fatalf("opened %v", o)
	}
	i := must[*pb.GetSessionResponse](t)(pb.NewInspectServiceClient(r.conn).GetSession(r.ctx, &pb.GetSessionRequest{Session: o.Session}))
	if i.Owner != "me" || i.Meta != "here" || i.TtlMs != 30_000 {
		t.Errorf("session %v", i)
	}
	if k := must[*pb.KeepResponse](t)(c.Keep(r.ctx, &pb.KeepRequest{LeaseId: o.LeaseId, TtlMs: 120_000})); k.TtlMs < 100_000 {
		t.Errorf("kept %v", k)
	}
	must[*pb.EndResponse](t)(c.End(r.ctx, &pb.EndRequest{LeaseId: o.LeaseId}))
	_, err := c.Keep(r.ctx, &pb.KeepRequest{LeaseId: o.LeaseId})
	wantCode(t, err, codes.NotFound)
	for _, q := range []*pb.OpenRequest{{TtlMs: -1}, {TtlMs: 5}, {LeaseId: -1}, {LeaseId: 1 << 52}, {Meta: string(make([]byte, 5000))}} {
		_, err := c.Open(r.ctx, q)
		wantCode(t, err, codes.InvalidArgument)
	}
}

func TestAdmin(t *testing.T) {
	r := serve(t)
	c := pb.NewAdminServiceClient(r.conn)
	l := r.locks()
	a := must[*pb.LockResponse](t)(l.Lock(r.ctx, &pb.LockRequest{Name: "x"}))
	f := must[*pb.ForceReleaseResponse](t)(c.ForceRelease(r.ctx, &pb.ForceReleaseRequest{Name: "x", Token: uint64(a.FencingToken)}))
	if f.UntilMs < 20_000 {
		t.Errorf("its holder may believe in it for %d ms", f.UntilMs)
	}
	must[*pb.UnlockResponse](t)(l.Unlock(r.ctx, &pb.UnlockRequest{Key: a.Key})) // the holder confirms
	b := must[*pb.LockResponse](t)(l.Lock(r.ctx, &pb.LockRequest{Name: "x"}))
	must[*pb.ForceReleaseResponse](t)(c.ForceRelease(r.ctx, &pb.ForceReleaseRequest{Name: "x", Token: uint64(b.FencingToken), Now: true}))
	r.holders("x", 0)
	_, err := c.ForceRelease(r.ctx, &pb.ForceReleaseRequest{Name: "x", Token: uint64(b.FencingToken)})
	wantCode(t, err, codes.NotFound)

	o := must[*pb.OpenResponse](t)(pb.NewSessionServiceClient(r.conn).Open(r.ctx, &pb.OpenRequest{}))
	must[*pb.RevokeSessionResponse](t)(c.RevokeSession(r.ctx, &pb.RevokeSessionRequest{Session: o.Session}))
	_, err = c.RevokeSession(r.ctx, &pb.RevokeSessionRequest{Session: []byte("short")})
	wantCode(t, err, codes.InvalidArgument)

	st := must[*pb.StatusResponse](t)(c.Status(r.ctx, &pb.StatusRequest{}))
	if !st.Serving || st.Leader != 1 || len(st.Members) != 1 || st.Members[0].Learner {
		t.Errorf("status %v", st)
	}
	_, err = c.ChangeMembers(r.ctx, &pb.ChangeMembersRequest{})
	wantCode(t, err, codes.InvalidArgument)
	for _, id := range []uint64{0, 9} {
		_, err = c.MoveLeader(r.ctx, &pb.MoveLeaderRequest{Id: id})
		wantCode(t, err, codes.InvalidArgument)
	}
}

func TestFence(t *testing.T) {
	r := serve(t)
	c := pb.NewFenceServiceClient(r.conn)
	a := must[*pb.LockResponse](t)(r.locks().Lock(r.ctx, &pb.LockRequest{Name: "x"}))
	if k := must[*pb.CheckTokenResponse](t)(c.CheckToken(r.ctx, &pb.CheckTokenRequest{Name: "x", Token: uint64(a.FencingToken)})); !k.Held || k.Revoked {
		t.Errorf("checked %v", k)
	}
	if k := must[*pb.CheckTokenResponse](t)(c.CheckToken(r.ctx, &pb.CheckTokenRequest{Name: "x", Token: 7})); k.Held {
		t.Errorf("checked %v", k)
	}
	write := func(token uint64, v string) error {
		_, err := c.Write(r.ctx, &pb.FenceWriteRequest{Register: "r", Token: token, Value: []byte(v)})
		return err
	}
	for _, err := range []error{write(10, "a"), write(10, "b"), write(12, "c")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if f := wantCode(t, write(11, "d"), codes.FailedPrecondition); f.Kind != "stale" {
		t.Errorf("an old token wrote: %v", f)
	}
	for _, token := range []uint64{0, 1 << 53, math.MaxInt64, math.MaxUint64} {
		wantCode(t, write(token, "e"), codes.InvalidArgument)
	}
	v := must[*pb.FenceReadResponse](t)(c.Read(r.ctx, &pb.FenceReadRequest{Register: "r"}))
	if string(v.Value) != "c" || v.Token != 12 {
		t.Errorf("read %v", v)
	}
	if l := must[*pb.RangeResponse](t)(pb.NewKVServiceClient(r.conn).Range(r.ctx, &pb.RangeRequest{})); len(l.Kvs) != 0 {
		t.Errorf("registers are among the keys: %v", l)
	}
	forget := func(register string, token uint64) (*pb.FenceForgetResponse, error) {
		return c.Forget(r.ctx, &pb.FenceForgetRequest{Register: register, Token: token})
	}
	_, err := forget("r", 11)
	if f := wantCode(t, err, codes.FailedPrecondition); f.Kind != "stale" {
		t.Errorf("an old token removed it: %v", f)
	}
	_, err = forget("r", 0)
	wantCode(t, err, codes.InvalidArgument)
	if f := must[*pb.FenceForgetResponse](t)(forget("r", 1<<62)); !f.Existed { // as for one that was written with such a token
		t.Errorf("forgot %v", f)
	}
	if f := must[*pb.FenceForgetResponse](t)(forget("r", 12)); f.Existed {
		t.Errorf("forgot again %v", f)
	}
	if err := write(10, "f"); err != nil {
		t.Errorf("a register that was forgotten: %v", err)
	}
}

// A hold is the key name/lease in a watch of locks, beside the keys.
func TestLockWatch(t *testing.T) {
	r := serve(t)
	l := r.locks()
	w := must[pb.LockService_WatchClient](t)(l.Watch(r.ctx))
	if err := w.Send(&pb.LockWatchRequest{Key: "x/", Prefix: true, WatchId: 3, PrevKv: true}); err != nil {
		t.Fatal(err)
	}
	if first := must[*pb.LockWatchResponse](t)(w.Recv()); first.WatchId != 3 || len(first.Events) != 0 {
		t.Fatalf("began with %v", first)
	}
	must[*pb.LeaseGrantResponse](t)(l.LeaseGrant(r.ctx, &pb.LeaseGrantRequest{Ttl: 60, Id: 255}))
	a := must[*pb.LockResponse](t)(l.Lock(r.ctx, &pb.LockRequest{Name: "x", LeaseId: 255}))
	must[*pb.LockResponse](t)(l.Lock(r.ctx, &pb.LockRequest{Name: "xy"}))
	must[*pb.PutResponse](t)(pb.NewKVServiceClient(r.conn).Put(r.ctx, &pb.PutRequest{Key: "x/k", Value: []byte("v")}))
	must[*pb.UnlockResponse](t)(l.Unlock(r.ctx, &pb.UnlockRequest{Key: a.Key}))
	var events []*pb.LockEvent
	for len(events) < 3 {
		events = append(events, must[*pb.LockWatchResponse](t)(w.Recv()).Events...)
	}
	put, kv, del := events[0], events[1], events[2]
	if put.Type != pb.LockEvent_TYPE_PUT || put.Kv.Key != "x/ff" || put.Kv.Lease != 255 || put.Kv.CreateRevision != a.FencingToken {
		t.Errorf("grant: %v", put)
	}
	if kv.Kv.Key != "x/k" || string(kv.Kv.Value) != "v" {
		t.Errorf("key: %v", kv)
	}
	if del.Type != pb.LockEvent_TYPE_DELETE || del.Kv.Key != "x/ff" || del.Kv.ModRevision <= put.Kv.ModRevision {
		t.Errorf("release: %v", del)
	}
	if err := w.Send(&pb.LockWatchRequest{Key: "x/", Prefix: true, WatchId: 4, StartRevision: a.FencingToken}); err != nil {
		t.Fatal(err)
	}
	must[*pb.LockWatchResponse](t)(w.Recv())
	if again := must[*pb.LockWatchResponse](t)(w.Recv()); again.WatchId != 4 || again.Events[0].Kv.Key != "x/ff" {
		t.Errorf("history: %v", again)
	}
	if err := w.Send(&pb.LockWatchRequest{}); err != nil {
		t.Fatal(err)
	}
	_, err := w.Recv()
	wantCode(t, err, codes.InvalidArgument)
}

// Waits end when the node is about to stop, and what they waited for is free.
func TestStopEndsWaits(t *testing.T) {
	r := serve(t)
	l := r.locks()
	must[*pb.LockResponse](t)(l.Lock(r.ctx, &pb.LockRequest{Name: "x"}))
	ended := make(chan error, 1)
	go func() {
		_, err := l.Lock(r.ctx, &pb.LockRequest{Name: "x"})
		ended <- err
	}()
	r.waiters("x", 1)
	began := time.Now()
	r.stop()
	if f := wantCode(t, <-ended, codes.Unavailable); !f.NotDone {
		t.Errorf("ended with %v after %v", f, time.Since(began))
	}
}
