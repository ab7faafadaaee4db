package api

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"

	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// Which calls may happen twice, so that another leader can be asked when nobody knows
// whether the first has done it.

// harmless calls change nothing, or only put off an end that their caller wants put
// off.
var harmless = methodSet(`ElectionService/Leader CounterService/Get SequenceService/Current KVService/Get KVService/Range
	FenceService/Read FenceService/CheckToken InspectService/Inspect InspectService/List InspectService/GetSession InspectService/Ping
	SessionService/Keep`)

// onceByKey calls happen once for their idempotency key, whoever is asked.
var onceByKey = methodSet(`CounterService/Add CounterService/Subtract CounterService/Set CounterService/CompareAndSet CounterService/Delete
	SequenceService/Reserve SequenceService/Delete LatchService/CountDown LatchService/Delete BarrierService/Delete
	SemaphoreService/Resize SemaphoreService/Delete KVService/Put KVService/Delete KVService/Txn FenceService/Write
	AdminService/ForceRelease AdminService/RevokeSession`)

// onceOnOwnLease calls do so only if they name no lease: a hold on a lease is made
// anew with each call.
var onceOnOwnLease = methodSet(`LockService/Lock LockService/TryLock RWLockService/AcquireRead RWLockService/AcquireWrite
	SemaphoreService/Acquire ElectionService/Campaign LockService/LeaseGrant SessionService/Open`)

func methodSet(names string) map[string]bool {
	all := map[string]bool{}
	for name := range strings.FieldsSeq(names) {
		all["/holdfast.v1."+name] = true
	}
	return all
}

// repeatable reports whether a call may happen twice.
func repeatable(ctx context.Context, method string, r any) bool {
	key := metadataOf(ctx)(headerKey) != ""
	return harmless[method] || key && (onceByKey[method] || onceOnOwnLease[method] && !namesLease(r))
}

// namesLease reports whether a request names a lease.
func namesLease(r any) bool {
	switch r := r.(type) {
	case interface{ GetTerms() *pb.Terms }:
		return r.GetTerms().GetLeaseId() != 0
	case interface{ GetLeaseId() int64 }:
		return r.GetLeaseId() != 0
	case interface{ GetId() int64 }:
		return r.GetId() != 0
	}
	return true
}

// repeatableHTTP reports whether a request over HTTP may happen twice.
func repeatableHTTP(r *http.Request, body []byte) bool {
	key, path := r.Header.Get(headerKey) != "", r.URL.EscapedPath()
	if !strings.HasPrefix(path, "/v1/") {
		return harmless[path] || key && onceByKey[path]
	}
	rt, name, err := find(r.Method, path)
	if err != nil {
		return true // it will be refused
	}
	return rt.repeatable(key, name, r.URL.Query(), body)
}

// bodyNamesLease reports whether the JSON of a body names a lease.
func bodyNamesLease(body []byte) bool {
	var in struct {
		LeaseID json.RawMessage `json:"lease_id"`
	}
	return len(body) > 0 && json.Unmarshal(body, &in) == nil && in.LeaseID != nil
}

// repeatable is that of a short path.
func (r *route) repeatable(key bool, name string, query url.Values, body []byte) bool {
	switch r.verb {
	case "renew", "keep":
		return true
	case "acquire", "campaign":
		return key && !query.Has("lease_id") && !bodyNamesLease(body)
	case "open":
		return key && name == ""
	case "add", "subtract", "set", "compare-and-set", "reserve", "resize", "count-down":
		return key
	case "":
		return r.method == http.MethodGet || key && r.kind != "leases"
	}
	return false
}
