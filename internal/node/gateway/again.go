package gateway

import (
	"strings"

	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// Which calls may happen twice, so that another leader can be asked when nobody knows
// whether the first has done it.

// harmless calls change nothing, or only put off an end that their caller wants put
// off.
var harmless = methodSet(`ElectionService/Leader CounterService/Get SequenceService/Current KVService/Get KVService/Range
	FenceService/Read FenceService/CheckToken InspectService/Inspect InspectService/List InspectService/GetSession InspectService/Ping
	LimitService/Peek LimitService/Available GuardService/Evaluate SessionService/Keep`)

// onceByKey calls happen once for their idempotency key, whichever node is asked.
var onceByKey = methodSet(`CounterService/Add CounterService/Subtract CounterService/Set CounterService/CompareAndSet CounterService/Delete
	SequenceService/Reserve SequenceService/Delete LatchService/CountDown LatchService/Wait LatchService/Delete BarrierService/Arrive BarrierService/Delete
	SemaphoreService/Resize SemaphoreService/Delete KVService/Put KVService/Delete KVService/Txn FenceService/Write FenceService/Forget
	LimitService/Allow LimitService/Reserve LimitService/Settle LimitService/Cancel LimitService/SetRate LimitService/Reset LimitService/Delete
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
func repeatable(method string, r any, key bool) bool {
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
