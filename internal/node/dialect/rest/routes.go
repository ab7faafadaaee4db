package rest

import (
	"cmp"
	"context"
	"encoding/base64"
	"strconv"
	"unicode/utf8"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/gateway"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

func (t *restClaiming) message() *pb.Terms {
	return &pb.Terms{LeaseId: t.LeaseID, TimeoutMs: t.TimeoutMS, TtlMs: t.TTLMS, Owner: t.HolderID}
}

func (t *restTerms) message() *pb.Terms {
	m := t.restClaiming.message()
	m.Metadata = []byte(t.Metadata)
	return m
}

// holdOf is a grant as JSON.
func holdOf(h *pb.Header, x *pb.Hold, err error) (restHold, error) {
	if err != nil {
		return restHold{}, err
	}
	return restHold{Name: x.Name, Token: x.Token, LeaseID: x.LeaseId, TTLMS: x.TtlMs, Revision: h.Revision}, nil
}

// released is the route that gives a hold of a kind back.
func released(kind, verb string, k core.Kind) route {
	return on("POST", kind, verb, "gives it back", func(ctx context.Context, g *gateway.Gateway, name string, in *restToken) (restDone, error) {
		h, err := g.GiveBack(ctx, name, in.Token, k)
		return restDone{h.GetRevision()}, err
	})
}

// renewed is the route that keeps a hold of a kind.
func renewed(kind string, k core.Kind) route {
	return on("POST", kind, "renew", "keeps it for another ttl_ms", func(ctx context.Context, g *gateway.Gateway, name string, in *restRenew) (restRenewed, error) {
		ttl, err := g.CheckRenewal(in.TTLMS)
		if err != nil {
			return restRenewed{}, err
		}
		left, err := g.Renew(ctx, name, in.Token, ttl, k)
		return restRenewed{left.Milliseconds()}, err
	})
}

// shown is the route that tells the holders and waiters of a name.
func shown(kind string) route {
	return on("GET", kind, "", "tells holders and waiters", func(ctx context.Context, g *gateway.Gateway, name string, in *restPage) (restName, error) {
		if err := cmp.Or(gateway.CheckName(name), gateway.CheckLimit(in.Limit)); err != nil {
			return restName{}, err
		}
		r, err := g.Inspect(ctx, &driver.InspectRequest{Name: name, After: in.After, Max: int(min(in.Limit, core.MaxClaims))})
		out := restName{Name: name, Holders: []restClaim{}, Waiters: []restClaim{}, Next: r.Next}
		for _, d := range r.Resources {
			out.Kind, out.Limit, out.Used, out.Holding, out.Waiting = d.Kind.String(), d.Limit, d.Used, d.Holding, d.Waiting
			out.Holders, out.Waiters = append(out.Holders, restClaims(d.Holders)...), append(out.Waiters, restClaims(d.Waiters)...)
		}
		return out, err
	})
}

func deleted(kind string, k core.Kind) route {
	return on("DELETE", kind, "", "removes it if nobody uses it", func(ctx context.Context, g *gateway.Gateway, name string, _ *none) (restDone, error) {
		r, err := g.Remove(ctx, k, &pb.DeleteRequest{Name: name})
		return restDone{r.GetHeader().GetRevision()}, err
	})
}

// routes are all short paths but /v1/watch, which streams (serveEvents in rest.go).
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
	on("GET", "elections", "", "tells the leader", leaderOf),

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

	on("POST", "limiters", "allow", "takes a cost if the rate allows that now; a refusal is an answer too", allow),
	on("GET", "limiters", "", "tells what allow would, and takes nothing", peek),
	on("POST", "limiters", "reserve", "takes a cost that is settled or cancelled later, once", reserveCost),
	on("POST", "limiters", "settle", "replaces what was reserved by what it did cost", settle),
	on("POST", "limiters", "cancel", "gives back what was reserved", cancel),
	on("POST", "limiters", "set-rate", "sets the rate for everybody; every key begins anew", setRate),
	on("POST", "limiters", "reset", "makes a key as if it had never been used", resetKey),
	deleted("limiters", core.Limiter),

	on("POST", "guards", "evaluate", "says whether a condition holds, and why; it only looks", evaluate),

	on("GET", "kv", "", "tells a key", getKey),
	on("PUT", "kv", "", "writes a key", putKey),
	on("DELETE", "kv", "", "removes a key", deleteKey),
	on("GET", "keys", "", "tells all keys with the prefix name", listKeys),

	on("POST", "leases", "open", "opens a lease; the name is its number, which must not be in use; empty: the server chooses", openLease),
	on("POST", "leases", "keep", "renews a lease", keepLease),
	on("GET", "leases", "", "tells how long a lease lives and what hangs on it", showLease),
	on("DELETE", "leases", "", "ends a lease with everything that hangs on it", endLease),
}

func acquireLock(ctx context.Context, g *gateway.Gateway, name string, in *restTerms) (restHold, error) {
	return holdOf(g.Take(ctx, "", core.Want{Name: name, Kind: core.Mutex}, in.message()))
}

func acquireRW(ctx context.Context, g *gateway.Gateway, name string, in *restMode) (restHold, error) {
	want := core.Want{Name: name, Kind: core.RWMutex}
	switch in.Mode {
	case "read":
		want.Mode = core.Shared
	case "write":
	default:
		return restHold{}, gateway.Invalid(name, "mode %q: give read or write", in.Mode)
	}
	return holdOf(g.Take(ctx, "", want, in.message()))
}

func upgradeRW(ctx context.Context, g *gateway.Gateway, name string, in *restUpgrade) (restHold, error) {
	r, err := gateway.RWLocks{Gateway: g}.Upgrade(ctx, &pb.UpgradeRequest{Name: name, Token: in.Token, TimeoutMs: in.TimeoutMS})
	return holdOf(r.GetHeader(), r.GetHold(), err)
}

func downgradeRW(ctx context.Context, g *gateway.Gateway, name string, in *restToken) (restDone, error) {
	r, err := gateway.RWLocks{Gateway: g}.Downgrade(ctx, &pb.DowngradeRequest{Name: name, Token: in.Token})
	return restDone{r.GetHeader().GetRevision()}, err
}

func acquireShare(ctx context.Context, g *gateway.Gateway, name string, in *restShare) (restHold, error) {
	r, err := gateway.Semaphores{Gateway: g}.Acquire(ctx, &pb.SemaphoreAcquireRequest{Name: name, Weight: in.Weight, Limit: in.Limit, Terms: in.message()})
	return holdOf(r.GetHeader(), r.GetHold(), err)
}

func resizeSemaphore(ctx context.Context, g *gateway.Gateway, name string, in *restLimit) (restDone, error) {
	r, err := gateway.Semaphores{Gateway: g}.Resize(ctx, &pb.ResizeRequest{Name: name, Limit: in.Limit})
	return restDone{r.GetHeader().GetRevision()}, err
}

func campaign(ctx context.Context, g *gateway.Gateway, name string, in *restCandidate) (restHold, error) {
	r, err := gateway.Elections{Gateway: g}.Campaign(ctx, &pb.CampaignRequest{Name: name, Value: []byte(in.Value), Terms: in.message()})
	return holdOf(r.GetHeader(), r.GetHold(), err)
}

func proclaim(ctx context.Context, g *gateway.Gateway, name string, in *restProclaim) (restDone, error) {
	r, err := gateway.Elections{Gateway: g}.Proclaim(ctx, &pb.ProclaimRequest{Name: name, Token: in.Token, Value: []byte(in.Value)})
	return restDone{r.GetHeader().GetRevision()}, err
}

func leaderOf(ctx context.Context, g *gateway.Gateway, name string, _ *none) (restLeader, error) {
	r, err := gateway.Elections{Gateway: g}.Leader(ctx, &pb.LeaderRequest{Name: name})
	out := restLeader{Elected: r.GetElected(), HolderID: r.GetOwner(), Token: r.GetToken()}
	out.Value, out.ValueBase64 = textOf(r.GetValue())
	return out, err
}

func countDown(ctx context.Context, g *gateway.Gateway, name string, in *restCountDown) (restLeft, error) {
	by := int64(1)
	if in.By != nil {
		by = *in.By
	}
	r, err := gateway.Latches{Gateway: g}.CountDown(ctx, &pb.CountDownRequest{Name: name, By: by, Count: in.Count})
	return restLeft{r.GetLeft()}, err
}

func waitLatch(ctx context.Context, g *gateway.Gateway, name string, in *restWait) (restDone, error) {
	r, err := gateway.Latches{Gateway: g}.Wait(ctx, &pb.LatchWaitRequest{Name: name, Count: in.Count, TimeoutMs: in.TimeoutMS})
	return restDone{r.GetHeader().GetRevision()}, err
}

func arrive(ctx context.Context, g *gateway.Gateway, name string, in *restArrive) (restDone, error) {
	r, err := gateway.Barriers{Gateway: g}.Arrive(ctx, &pb.ArriveRequest{Name: name, Parties: in.Parties, TimeoutMs: in.TimeoutMS})
	return restDone{r.GetHeader().GetRevision()}, err
}

func counted(ctx context.Context, g *gateway.Gateway, c core.Command) (restValue, error) {
	_, n, _, err := g.Count(ctx, "", c)
	return valueOf(n, c.Unsigned), err
}

// valueOf is a counter's value in the field of its kind, 0 too.
func valueOf(n gateway.Number, unsigned bool) restValue {
	if unsigned {
		return restValue{UnsignedValue: &n.Unsigned}
	}
	return restValue{Value: n.Signed}
}

func getCounter(ctx context.Context, g *gateway.Gateway, name string, in *restUnsigned) (restValue, error) {
	return counted(ctx, g, core.Command{Name: name, Count: core.CountLoad, Unsigned: in.Unsigned})
}

func addCounter(ctx context.Context, g *gateway.Gateway, name string, in *restAmount) (restValue, error) {
	return counted(ctx, g, core.Command{Name: name, Count: core.CountAdd, A: gateway.AmountOf(in.Amount), Unsigned: in.Unsigned})
}

func subtractCounter(ctx context.Context, g *gateway.Gateway, name string, in *restAmount) (restValue, error) {
	return counted(ctx, g, core.Command{Name: name, Count: core.CountSub, A: gateway.AmountOf(in.Amount), Unsigned: in.Unsigned})
}

// theOne is the number of a signed or unsigned counter that a body gives; the other
// one must not be there.
func theOne(field string, unsigned bool, s *int64, u *uint64) (uint64, error) {
	switch {
	case unsigned && s != nil:
		return 0, gateway.Invalid("", "%s is for signed counters: with unsigned give unsigned_%s", field, field)
	case !unsigned && u != nil:
		return 0, gateway.Invalid("", "unsigned_%s is for unsigned counters: give unsigned with it, or %s", field, field)
	case unsigned && u != nil:
		return *u, nil
	case s != nil:
		return uint64(*s), nil
	}
	return 0, gateway.Invalid("", "%s is missing: give it, or unsigned_%s and unsigned", field, field)
}

func setCounter(ctx context.Context, g *gateway.Gateway, name string, in *restSet) (restValue, error) {
	value, err := theOne("value", in.Unsigned, in.Value, in.UnsignedValue)
	if err != nil {
		return restValue{}, err
	}
	return counted(ctx, g, core.Command{Name: name, Count: core.CountStore, A: value, Unsigned: in.Unsigned})
}

func swapCounter(ctx context.Context, g *gateway.Gateway, name string, in *restSwap) (restSwapped, error) {
	expected, err1 := theOne("expected", in.Unsigned, in.Expected, in.UnsignedExpected)
	value, err2 := theOne("value", in.Unsigned, in.Value, in.UnsignedValue)
	if err := cmp.Or(err1, err2); err != nil {
		return restSwapped{}, err
	}
	r, n, _, err := g.Count(ctx, "", core.Command{Name: name, Count: core.CountSwap, Unsigned: in.Unsigned, A: expected, B: value})
	return restSwapped{valueOf(n, in.Unsigned), r.OK}, err
}

func reserveNumbers(ctx context.Context, g *gateway.Gateway, name string, in *restReserve) (restRange, error) {
	r, err := gateway.Sequences{Gateway: g}.Reserve(ctx, &pb.ReserveRequest{Name: name, Count: in.Count, Start: in.Start})
	return restRange{r.GetFirst(), r.GetCount()}, err
}

func nextNumber(ctx context.Context, g *gateway.Gateway, name string, _ *none) (restNext, error) {
	r, err := gateway.Sequences{Gateway: g}.Current(ctx, &pb.CurrentRequest{Name: name})
	return restNext{r.GetNext()}, err
}

func keyOfJSON(k *pb.KeyValue) restKey {
	out := restKey{Key: k.Key, CreateRevision: k.CreateRevision, ModRevision: k.ModRevision, Version: k.Version, ExpiresInMS: k.ExpiresInMs}
	out.Value, out.ValueBase64 = textOf(k.Value)
	return out
}

// textOf is a value as JSON has it: as it is if it is text, else in base64.
func textOf(value []byte) (text, coded string) {
	if utf8.Valid(value) {
		return string(value), ""
	}
	return "", base64.StdEncoding.EncodeToString(value)
}

func getKey(ctx context.Context, g *gateway.Gateway, name string, _ *none) (restKey, error) {
	r, err := gateway.Keys{Gateway: g}.Get(ctx, &pb.GetRequest{Key: name})
	switch {
	case err != nil:
		return restKey{}, err
	case r.Kv == nil:
		return restKey{}, gateway.NotExist(name)
	}
	return keyOfJSON(r.Kv), nil
}

func putKey(ctx context.Context, g *gateway.Gateway, name string, in *restPut) (restDone, error) {
	value := in.ValueBase64
	switch {
	case in.Value != nil && in.ValueBase64 != nil:
		return restDone{}, gateway.Invalid(name, "value and value_base64 are both given: give one")
	case in.Value != nil:
		value = []byte(*in.Value)
	case in.ValueBase64 == nil:
		return restDone{}, gateway.Invalid(name, "the value is missing: give value or value_base64, which may be empty")
	}
	r, err := gateway.Keys{Gateway: g}.Put(ctx, &pb.PutRequest{Key: name, Value: value, LeaseId: in.LeaseID, ExpireMs: in.ExpireMS, ExpectRevision: in.ExpectRevision})
	return restDone{r.GetHeader().GetRevision()}, err
}

func deleteKey(ctx context.Context, g *gateway.Gateway, name string, in *restDelete) (restDeleted, error) {
	r, err := gateway.Keys{Gateway: g}.Delete(ctx, &pb.KVDeleteRequest{Key: name, ExpectRevision: in.ExpectRevision})
	return restDeleted{r.GetDeleted()}, err
}

func listKeys(ctx context.Context, g *gateway.Gateway, prefix string, in *restList) (restKeys, error) {
	r, err := gateway.Keys{Gateway: g}.Range(ctx, &pb.RangeRequest{Prefix: prefix, Limit: in.Limit, After: in.After, KeysOnly: in.KeysOnly, Count: in.Count})
	out := restKeys{Keys: []restKey{}, More: r.GetMore(), Next: r.GetNext(), Count: r.GetCount(), Revision: r.GetHeader().GetRevision()}
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
		return 0, gateway.Invalid("", "%q is no number of a lease", name)
	}
	return n, nil
}

func openLease(ctx context.Context, g *gateway.Gateway, name string, in *restOpen) (restLease, error) {
	n, err := leaseNumber(name)
	if err != nil {
		return restLease{}, err
	}
	policy, err := policyOf(in.Policy)
	if err != nil {
		return restLease{}, err
	}
	r, err := g.OpenLease(ctx, &pb.OpenRequest{LeaseId: n, TtlMs: in.TTLMS, Owner: in.HolderID, Policy: policy, GraceMs: in.GraceMS})
	return restLease{r.GetLeaseId(), r.GetTtlMs()}, err
}

// policyOf is the reclaim policy that a call names; "" is at-deadline.
func policyOf(name string) (pb.ReclaimPolicy, error) {
	switch name {
	case "", "at-deadline":
		return pb.ReclaimPolicy_RECLAIM_POLICY_AT_DEADLINE, nil
	case "on-next-acquire":
		return pb.ReclaimPolicy_RECLAIM_POLICY_ON_NEXT_ACQUIRE, nil
	case "never":
		return pb.ReclaimPolicy_RECLAIM_POLICY_NEVER, nil
	}
	return 0, gateway.Invalid("", "the policy %q is unknown: give at-deadline, on-next-acquire or never", gateway.Clip(name))
}

func showLease(ctx context.Context, g *gateway.Gateway, name string, in *restPage) (restSession, error) {
	n, err := leaseNumber(name)
	if err = cmp.Or(err, gateway.CheckLimit(in.Limit)); err != nil {
		return restSession{}, err
	}
	info, err := g.LeaseInfo(ctx, n, in.After, int(min(in.Limit, core.MaxClaims)))
	if err != nil {
		return restSession{}, err
	}
	return restSession{
		LeaseID: n, TTLMS: info.ExpiresIn.Milliseconds(), HolderID: info.Owner,
		Names: listed(info.Names), Waits: listed(info.Waits), Keys: listed(info.Keys), Next: info.Next,
	}, nil
}

// listed is a list that is there even if it is empty.
func listed(list []string) []string { return append([]string{}, list...) }

func keepLease(ctx context.Context, g *gateway.Gateway, name string, in *restTTL) (restLease, error) {
	n, err := leaseNumber(name)
	if err != nil {
		return restLease{}, err
	}
	r, err := gateway.Sessions{Gateway: g}.Keep(ctx, &pb.KeepRequest{LeaseId: n, TtlMs: in.TTLMS})
	return restLease{n, r.GetTtlMs()}, err
}

func endLease(ctx context.Context, g *gateway.Gateway, name string, _ *none) (restDone, error) {
	n, err := leaseNumber(name)
	if err != nil {
		return restDone{}, err
	}
	h, err := g.EndLease(ctx, n)
	return restDone{h.GetRevision()}, err
}
