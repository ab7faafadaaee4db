package api

import (
	"context"
	"encoding/base64"
	"strconv"
	"unicode/utf8"

	"github.com/holdfast-io/holdfast/core"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/convert"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// The bodies of the short paths. Numbers are below 2^53 but for counters and
// sequences.

type none struct{}

type restTerms struct {
	HolderID  string `json:"holder_id" doc:"who wants it, for people"`
	TTLMS     int64  `json:"ttl_ms" doc:"how long it is held unless renewed; default 30000"`
	TimeoutMS *int64 `json:"timeout_ms" doc:"how long to wait; 0: one try; absent: as long as the call lasts"`
	LeaseID   int64  `json:"lease_id" doc:"the lease to hang it on; absent: one of its own, with ttl_ms"`
	Metadata  string `json:"metadata" doc:"kept with it, at most 4 KiB"`
}

func (t *restTerms) message() *pb.Terms {
	return &pb.Terms{LeaseId: t.LeaseID, TimeoutMs: t.TimeoutMS, TtlMs: t.TTLMS, Owner: t.HolderID, Metadata: []byte(t.Metadata)}
}

type restHold struct {
	Name     string `json:"name" doc:"what is held"`
	Token    uint64 `json:"token" doc:"the fencing token: greater than that of every earlier grant of the name"`
	LeaseID  int64  `json:"lease_id" doc:"the lease that it ends with"`
	TTLMS    int64  `json:"ttl_ms" doc:"time left; count it from when you sent the call"`
	Revision int64  `json:"revision" doc:"the revision of the grant"`
}

type restToken struct {
	Token uint64 `json:"token" doc:"the token of the hold"`
}

type restRenew struct {
	Token uint64 `json:"token" doc:"the token of the hold"`
	TTLMS int64  `json:"ttl_ms" doc:"how long from now; 0: as when it was taken; a deadline only grows"`
}

type restRenewed struct {
	TTLMS int64 `json:"ttl_ms" doc:"time left; count it from when you sent the call"`
}

type restDone struct {
	Revision int64 `json:"revision" doc:"the revision of the change"`
}

type restName struct {
	Name    string      `json:"name" doc:"the name"`
	Kind    string      `json:"kind,omitempty" doc:"what it is; absent: nobody holds or awaits it"`
	Limit   int64       `json:"limit,omitempty" doc:"its capacity"`
	Used    int64       `json:"used,omitempty" doc:"how much of it is taken"`
	Holders []restClaim `json:"holders" doc:"who has it"`
	Waiters []restClaim `json:"waiters" doc:"who waits, in order"`
}

type restMode struct {
	restTerms
	Mode string `json:"mode" doc:"read or write"`
}

type restShare struct {
	restTerms
	Weight int64 `json:"weight" doc:"how much; default 1"`
	Limit  int64 `json:"limit" doc:"its limit when it is new; absent: the one it has"`
}

type restLimit struct {
	Limit int64 `json:"limit" doc:"the new limit, at least 1"`
}

type restCandidate struct {
	restTerms
	Value string `json:"value" doc:"what it proclaims once elected, at most 4 KiB"`
}

type restProclaim struct {
	Token uint64 `json:"token" doc:"the leader's token"`
	Value string `json:"value" doc:"the new value, at most 4 KiB"`
}

type restLeader struct {
	Elected  bool   `json:"elected" doc:"somebody leads"`
	HolderID string `json:"holder_id,omitempty" doc:"who, for people"`
	Value    string `json:"value,omitempty" doc:"what it proclaims"`
	Token    uint64 `json:"token,omitempty" doc:"its fencing token"`
}

type restUpgrade struct {
	Token     uint64 `json:"token" doc:"the reader's token"`
	TimeoutMS *int64 `json:"timeout_ms" doc:"how long to wait; absent: as long as the call lasts"`
}

type restAmount struct {
	Amount   uint64 `json:"amount" doc:"how much"`
	Unsigned bool   `json:"unsigned" doc:"the counter is unsigned: 0 to 2^64-1"`
}

type restUnsigned struct {
	Unsigned bool `json:"unsigned" doc:"the counter is unsigned: 0 to 2^64-1"`
}

type restSet struct {
	Value         int64  `json:"value" doc:"the value of a signed counter"`
	UnsignedValue uint64 `json:"unsigned_value" doc:"the value of an unsigned counter"`
	Unsigned      bool   `json:"unsigned" doc:"the counter is unsigned"`
}

type restSwap struct {
	restSet
	Expected         int64  `json:"expected" doc:"what a signed counter must be"`
	UnsignedExpected uint64 `json:"unsigned_expected" doc:"what an unsigned counter must be"`
}

type restValue struct {
	Value         int64  `json:"value" doc:"the value of a signed counter"`
	UnsignedValue uint64 `json:"unsigned_value,omitempty" doc:"the value of an unsigned counter"`
}

type restSwapped struct {
	restValue
	Swapped bool `json:"swapped" doc:"it was the expected value, and is set"`
}

type restReserve struct {
	Count uint64 `json:"count" doc:"how many; default 1"`
	Start uint64 `json:"start" doc:"the first number of a new sequence; default 1"`
}

type restRange struct {
	First uint64 `json:"first" doc:"first to first+count-1 are the caller's"`
	Count uint64 `json:"count" doc:"how many"`
}

type restNext struct {
	Next uint64 `json:"next" doc:"the number that would be given next"`
}

type restCountDown struct {
	By    *int64 `json:"by" doc:"how much; default 1; 0: only tell what is left"`
	Count int64  `json:"count" doc:"the count of a new latch; absent: it must exist"`
}

type restLeft struct {
	Left int64 `json:"left" doc:"what is left; 0: the latch is open"`
}

type restWait struct {
	Count     int64  `json:"count" doc:"the count of a new latch; absent: it must exist"`
	TimeoutMS *int64 `json:"timeout_ms" doc:"how long to wait; absent: as long as the call lasts"`
}

type restArrive struct {
	Parties   int64  `json:"parties" doc:"how many have to come; absent: as many as it has"`
	TimeoutMS *int64 `json:"timeout_ms" doc:"how long to wait; absent: as long as the call lasts"`
}

type restPut struct {
	Value          *string `json:"value" doc:"the value as text"`
	ValueBase64    []byte  `json:"value_base64" doc:"or any bytes, in base64"`
	LeaseID        int64   `json:"lease_id" doc:"the lease that it ends with; absent: none"`
	ExpireMS       int64   `json:"expire_ms" doc:"it ends by itself after so long; absent: it does not"`
	ExpectRevision *uint64 `json:"expect_revision" doc:"write only if its mod_revision is this one; 0: only if it is absent"`
}

type restDelete struct {
	ExpectRevision *uint64 `json:"expect_revision" doc:"remove only if its mod_revision is this one"`
}

type restDeleted struct {
	Deleted int64 `json:"deleted" doc:"how many keys were removed"`
}

type restKey struct {
	Key            string `json:"key" doc:"the key"`
	Value          string `json:"value,omitempty" doc:"its value, if that is text"`
	ValueBase64    string `json:"value_base64,omitempty" doc:"its value in base64, if it is not text"`
	CreateRevision uint64 `json:"create_revision" doc:"the revision of its creation"`
	ModRevision    uint64 `json:"mod_revision" doc:"the revision of its last change"`
	Version        uint64 `json:"version" doc:"1 when created, then counted up"`
	ExpiresInMS    int64  `json:"expires_in_ms,omitempty" doc:"time left to its own expiry"`
}

type restList struct {
	Limit int64 `json:"limit" doc:"at most so many"`
}

type restKeys struct {
	Keys []restKey `json:"keys" doc:"the keys with the prefix, in order"`
	More bool      `json:"more" doc:"there are more"`
}

type restOpen struct {
	HolderID string `json:"holder_id" doc:"who, for people"`
	TTLMS    int64  `json:"ttl_ms" doc:"how long it lives unless kept; default 30000"`
}

type restLease struct {
	LeaseID int64 `json:"lease_id" doc:"the lease"`
	TTLMS   int64 `json:"ttl_ms" doc:"time left; count it from when you sent the call"`
}

type restTTL struct {
	TTLMS int64 `json:"ttl_ms" doc:"how long from now; absent: as when it was opened"`
}

// holdOf is a grant as JSON.
func holdOf(h *pb.Header, x *pb.Hold, err error) (restHold, error) {
	if err != nil {
		return restHold{}, err
	}
	return restHold{Name: x.Name, Token: x.Token, LeaseID: x.LeaseId, TTLMS: x.TtlMs, Revision: h.Revision}, nil
}

// released is the route that gives a hold of a kind back, renewed the one that
// keeps it, shown the one that tells who has it.
func released(kind, verb string, k core.Kind) route {
	return on("POST", kind, verb, "gives it back", func(ctx context.Context, g *gateway, name string, in *restToken) (restDone, error) {
		h, err := g.giveBack(ctx, name, in.Token, k)
		return restDone{h.GetRevision()}, err
	})
}

func renewed(kind string, k core.Kind) route {
	return on("POST", kind, "renew", "keeps it for another ttl_ms", func(ctx context.Context, g *gateway, name string, in *restRenew) (restRenewed, error) {
		ttl, err := checkSpan("a ttl_ms", in.TTLMS, maxTTL)
		if err != nil {
			return restRenewed{}, err
		}
		left, err := g.renew(ctx, name, in.Token, ttl, k)
		return restRenewed{left.Milliseconds()}, err
	})
}

func shown(kind string) route {
	return on("GET", kind, "", "tells who has it and who waits", func(ctx context.Context, g *gateway, name string, _ *none) (restName, error) {
		if err := checkName(name); err != nil {
			return restName{}, err
		}
		out := restName{Name: name, Holders: []restClaim{}, Waiters: []restClaim{}}
		ns := callerOf(ctx).namespace
		err := g.look(ctx, func(m *core.Machine, now int64) {
			if r, ok := m.Inspect(ns, name); ok {
				d := convert.Resource(now, &r)
				out.Kind, out.Limit, out.Used = driver.ResourceKind(r.Kind).String(), d.Limit, d.Used
				out.Holders, out.Waiters = append(out.Holders, restClaims(d.Holders)...), append(out.Waiters, restClaims(d.Waiters)...)
			}
		})
		return out, err
	})
}

func deleted(kind string, k core.Kind) route {
	return on("DELETE", kind, "", "removes it if nobody uses it", func(ctx context.Context, g *gateway, name string, _ *none) (restDone, error) {
		r, err := g.remove(ctx, k, &pb.DeleteRequest{Name: name})
		return restDone{r.GetHeader().GetRevision()}, err
	})
}

// routes are all short paths.
var routes = []route{
	on("POST", "locks", "acquire", "takes a lock", acquireLock),
	released("locks", "release", core.Mutex),
	renewed("locks", core.Mutex),
	shown("locks"),

	on("POST", "rwlocks", "acquire", "takes a reader-writer lock", acquireRW),
	released("rwlocks", "release", core.RWMutex),
	renewed("rwlocks", core.RWMutex),
	on("POST", "rwlocks", "upgrade", "makes a reader the writer, with a new token", upgradeRW),
	on("POST", "rwlocks", "downgrade", "makes the writer a reader; its token stays", downgradeRW),
	shown("rwlocks"),

	on("POST", "semaphores", "acquire", "takes a share of a semaphore", acquireShare),
	released("semaphores", "release", core.Semaphore),
	renewed("semaphores", core.Semaphore),
	on("POST", "semaphores", "resize", "sets the limit", resizeSemaphore),
	shown("semaphores"),
	deleted("semaphores", core.Semaphore),

	on("POST", "elections", "campaign", "waits until the caller is elected", campaign),
	on("POST", "elections", "proclaim", "sets what the leader tells", proclaim),
	released("elections", "resign", core.Election),
	renewed("elections", core.Election),
	on("GET", "elections", "", "tells who leads", leaderOf),

	on("POST", "latches", "count-down", "takes something off a latch's count", countDown),
	on("POST", "latches", "wait", "answers when the latch is open", waitLatch),
	deleted("latches", core.Latch),
	on("POST", "barriers", "arrive", "waits until all have come", arrive),
	deleted("barriers", core.Barrier),

	on("GET", "counters", "", "tells the value", getCounter),
	on("POST", "counters", "add", "adds, and answers with the new value", addCounter),
	on("POST", "counters", "subtract", "subtracts, and answers with the new value", subtractCounter),
	on("POST", "counters", "set", "sets the value", setCounter),
	on("POST", "counters", "compare-and-set", "sets the value if it is the expected one", swapCounter),
	deleted("counters", core.Counter),

	on("POST", "sequences", "reserve", "takes numbers that nobody gets twice", reserveNumbers),
	on("GET", "sequences", "", "tells the next number without taking it", nextNumber),
	deleted("sequences", core.Sequence),

	on("GET", "kv", "", "tells a key", getKey),
	on("PUT", "kv", "", "writes a key", putKey),
	on("DELETE", "kv", "", "removes a key", deleteKey),
	on("GET", "keys", "", "tells all keys with the prefix name", listKeys),

	on("POST", "leases", "open", "opens a lease, or renews it; the name is its number, empty: the server chooses", openLease),
	on("POST", "leases", "keep", "renews a lease", keepLease),
	on("DELETE", "leases", "", "ends a lease with everything that hangs on it", endLease),
}

func acquireLock(ctx context.Context, g *gateway, name string, in *restTerms) (restHold, error) {
	h, err := g.lock(ctx, name, in.message())
	if err != nil {
		return restHold{}, asHeld(err)
	}
	return restHold{Name: name, Token: h.token, LeaseID: h.lease, TTLMS: h.left.Milliseconds(), Revision: int64(h.revision)}, nil
}

// asHeld says of a wait whose time has passed who stood in its way.
func asHeld(err error) error {
	if !notAcquired(err) {
		return err
	}
	e := *err.(*driver.Error)
	e.Kind, e.Err = driver.ErrHeld, nil
	return &e
}

func acquireRW(ctx context.Context, g *gateway, name string, in *restMode) (restHold, error) {
	want := core.Want{Name: name, Kind: core.RWMutex}
	switch in.Mode {
	case "read":
		want.Mode = core.Shared
	case "write":
	default:
		return restHold{}, invalid(name, "mode %q: give read or write", in.Mode)
	}
	x, err := holdOf(g.take(ctx, "", want, in.message()))
	return x, asHeld(err)
}

func upgradeRW(ctx context.Context, g *gateway, name string, in *restUpgrade) (restHold, error) {
	r, err := rwService{gateway: g}.Upgrade(ctx, &pb.UpgradeRequest{Name: name, Token: in.Token, TimeoutMs: in.TimeoutMS})
	return holdOf(r.GetHeader(), r.GetHold(), err)
}

func downgradeRW(ctx context.Context, g *gateway, name string, in *restToken) (restDone, error) {
	r, err := rwService{gateway: g}.Downgrade(ctx, &pb.DowngradeRequest{Name: name, Token: in.Token})
	return restDone{r.GetHeader().GetRevision()}, err
}

func acquireShare(ctx context.Context, g *gateway, name string, in *restShare) (restHold, error) {
	r, err := semaphoreService{gateway: g}.Acquire(ctx, &pb.SemaphoreAcquireRequest{Name: name, Weight: in.Weight, Limit: in.Limit, Terms: in.message()})
	x, err := holdOf(r.GetHeader(), r.GetHold(), err)
	return x, asHeld(err)
}

func resizeSemaphore(ctx context.Context, g *gateway, name string, in *restLimit) (restDone, error) {
	r, err := semaphoreService{gateway: g}.Resize(ctx, &pb.ResizeRequest{Name: name, Limit: in.Limit})
	return restDone{r.GetHeader().GetRevision()}, err
}

func campaign(ctx context.Context, g *gateway, name string, in *restCandidate) (restHold, error) {
	r, err := electionService{gateway: g}.Campaign(ctx, &pb.CampaignRequest{Name: name, Value: []byte(in.Value), Terms: in.message()})
	x, err := holdOf(r.GetHeader(), r.GetHold(), err)
	return x, asHeld(err)
}

func proclaim(ctx context.Context, g *gateway, name string, in *restProclaim) (restDone, error) {
	r, err := electionService{gateway: g}.Proclaim(ctx, &pb.ProclaimRequest{Name: name, Token: in.Token, Value: []byte(in.Value)})
	return restDone{r.GetHeader().GetRevision()}, err
}

func leaderOf(ctx context.Context, g *gateway, name string, _ *none) (restLeader, error) {
	r, err := electionService{gateway: g}.Leader(ctx, &pb.LeaderRequest{Name: name})
	return restLeader{r.GetElected(), r.GetOwner(), string(r.GetValue()), r.GetToken()}, err
}

func countDown(ctx context.Context, g *gateway, name string, in *restCountDown) (restLeft, error) {
	by := int64(1)
	if in.By != nil {
		by = *in.By
	}
	r, err := latchService{gateway: g}.CountDown(ctx, &pb.CountDownRequest{Name: name, By: by, Count: in.Count})
	return restLeft{r.GetLeft()}, err
}

func waitLatch(ctx context.Context, g *gateway, name string, in *restWait) (restDone, error) {
	r, err := latchService{gateway: g}.Wait(ctx, &pb.LatchWaitRequest{Name: name, Count: in.Count, TimeoutMs: in.TimeoutMS})
	return restDone{r.GetHeader().GetRevision()}, err
}

func arrive(ctx context.Context, g *gateway, name string, in *restArrive) (restDone, error) {
	r, err := barrierService{gateway: g}.Arrive(ctx, &pb.ArriveRequest{Name: name, Parties: in.Parties, TimeoutMs: in.TimeoutMS})
	return restDone{r.GetHeader().GetRevision()}, err
}

func counted(ctx context.Context, g *gateway, c core.Command) (restValue, error) {
	_, n, _, err := g.count(ctx, "", c)
	return restValue{n.signed, n.unsigned}, err
}

func getCounter(ctx context.Context, g *gateway, name string, in *restUnsigned) (restValue, error) {
	return counted(ctx, g, core.Command{Name: name, Count: core.CountLoad, Unsigned: in.Unsigned})
}

func addCounter(ctx context.Context, g *gateway, name string, in *restAmount) (restValue, error) {
	return counted(ctx, g, core.Command{Name: name, Count: core.CountAdd, A: in.Amount, Unsigned: in.Unsigned})
}

func subtractCounter(ctx context.Context, g *gateway, name string, in *restAmount) (restValue, error) {
	return counted(ctx, g, core.Command{Name: name, Count: core.CountSub, A: in.Amount, Unsigned: in.Unsigned})
}

func setCounter(ctx context.Context, g *gateway, name string, in *restSet) (restValue, error) {
	return counted(ctx, g, core.Command{Name: name, Count: core.CountStore, A: either(in.Unsigned, in.Value, in.UnsignedValue), Unsigned: in.Unsigned})
}

func swapCounter(ctx context.Context, g *gateway, name string, in *restSwap) (restSwapped, error) {
	r, n, _, err := g.count(ctx, "", core.Command{
		Name: name, Count: core.CountSwap, Unsigned: in.Unsigned,
		A: either(in.Unsigned, in.Expected, in.UnsignedExpected), B: either(in.Unsigned, in.Value, in.UnsignedValue),
	})
	return restSwapped{restValue{n.signed, n.unsigned}, r.OK}, err
}

func reserveNumbers(ctx context.Context, g *gateway, name string, in *restReserve) (restRange, error) {
	r, err := sequenceService{gateway: g}.Reserve(ctx, &pb.ReserveRequest{Name: name, Count: in.Count, Start: in.Start})
	return restRange{r.GetFirst(), r.GetCount()}, err
}

func nextNumber(ctx context.Context, g *gateway, name string, _ *none) (restNext, error) {
	r, err := sequenceService{gateway: g}.Current(ctx, &pb.CurrentRequest{Name: name})
	return restNext{r.GetNext()}, err
}

func keyOfJSON(k *pb.KeyValue) restKey {
	out := restKey{Key: k.Key, CreateRevision: k.CreateRevision, ModRevision: k.ModRevision, Version: k.Version, ExpiresInMS: k.ExpiresInMs}
	if utf8.Valid(k.Value) {
		out.Value = string(k.Value)
	} else {
		out.ValueBase64 = base64.StdEncoding.EncodeToString(k.Value)
	}
	return out
}

func getKey(ctx context.Context, g *gateway, name string, _ *none) (restKey, error) {
	r, err := kvService{gateway: g}.Get(ctx, &pb.GetRequest{Key: name})
	switch {
	case err != nil:
		return restKey{}, err
	case r.Kv == nil:
		return restKey{}, notExist(name)
	}
	return keyOfJSON(r.Kv), nil
}

func putKey(ctx context.Context, g *gateway, name string, in *restPut) (restDone, error) {
	value := in.ValueBase64
	if in.Value != nil {
		value = []byte(*in.Value)
	}
	r, err := kvService{gateway: g}.Put(ctx, &pb.PutRequest{Key: name, Value: value, LeaseId: in.LeaseID, ExpireMs: in.ExpireMS, ExpectRevision: in.ExpectRevision})
	return restDone{r.GetHeader().GetRevision()}, err
}

func deleteKey(ctx context.Context, g *gateway, name string, in *restDelete) (restDeleted, error) {
	r, err := kvService{gateway: g}.Delete(ctx, &pb.KVDeleteRequest{Key: name, ExpectRevision: in.ExpectRevision})
	return restDeleted{r.GetDeleted()}, err
}

func listKeys(ctx context.Context, g *gateway, prefix string, in *restList) (restKeys, error) {
	r, err := kvService{gateway: g}.Range(ctx, &pb.RangeRequest{Prefix: prefix, Limit: in.Limit})
	out := restKeys{Keys: []restKey{}, More: r.GetMore()}
	for _, k := range r.GetKvs() {
		out.Keys = append(out.Keys, keyOfJSON(k))
	}
	return out, err
}

// leaseNumber is the lease that a path names; "" is 0.
func leaseNumber(name string) (int64, error) {
	if name == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(name, 10, 64)
	if err != nil {
		return 0, invalid("", "%q is no number of a lease", name)
	}
	return n, nil
}

func openLease(ctx context.Context, g *gateway, name string, in *restOpen) (restLease, error) {
	n, err := leaseNumber(name)
	if err != nil {
		return restLease{}, err
	}
	r, err := g.open(ctx, &pb.OpenRequest{LeaseId: n, TtlMs: in.TTLMS, Owner: in.HolderID})
	return restLease{r.GetLeaseId(), r.GetTtlMs()}, err
}

func keepLease(ctx context.Context, g *gateway, name string, in *restTTL) (restLease, error) {
	n, err := leaseNumber(name)
	if err != nil {
		return restLease{}, err
	}
	r, err := sessionService{gateway: g}.Keep(ctx, &pb.KeepRequest{LeaseId: n, TtlMs: in.TTLMS})
	return restLease{n, r.GetTtlMs()}, err
}

func endLease(ctx context.Context, g *gateway, name string, _ *none) (restDone, error) {
	n, err := leaseNumber(name)
	if err != nil {
		return restDone{}, err
	}
	h, err := g.endLease(ctx, n)
	return restDone{h.GetRevision()}, err
}
