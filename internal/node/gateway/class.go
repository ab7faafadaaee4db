package gateway

import (
	"strings"

	"github.com/holdfast-io/holdfast/internal/node/admission"
)

// classes say what each call is under overload; every call of the proto is here.
// Operators' calls are among the first: they are how an overload is ended.
var classes = classTable(map[admission.Class]string{
	admission.Keep: `LockService/Unlock LockService/LeaseRevoke LockService/LeaseKeepAlive RWLockService/Release RWLockService/Downgrade
		SemaphoreService/Release ElectionService/Resign ElectionService/HandOver SessionService/Keep SessionService/End SessionStream/Attach
		AdminService/ForceRelease AdminService/RevokeSession AdminService/Status AdminService/ChangeMembers AdminService/MoveLeader
		AdminService/CheckState AdminService/Unfreeze
		InspectService/Ping`,
	admission.Grant: `LockService/Lock LockService/TryLock RWLockService/AcquireRead RWLockService/AcquireWrite RWLockService/Upgrade
		SemaphoreService/Acquire SemaphoreService/Resize SemaphoreService/Delete ElectionService/Campaign ElectionService/Proclaim
		LatchService/CountDown LatchService/Wait LatchService/Delete BarrierService/Arrive BarrierService/Delete
		CounterService/Add CounterService/Subtract CounterService/Set CounterService/CompareAndSet CounterService/Delete
		SequenceService/Reserve SequenceService/Delete KVService/Put KVService/Delete KVService/Txn FenceService/CheckToken FenceService/Write FenceService/Forget
		LimitService/Allow LimitService/Reserve LimitService/Settle LimitService/Cancel LimitService/SetRate LimitService/Reset LimitService/Delete`,
	admission.Create: `LockService/LeaseGrant SessionService/Open`,
	admission.List: `LockService/Watch ElectionService/Leader CounterService/Get SequenceService/Current KVService/Get KVService/Range
		LimitService/Peek LimitService/Available GuardService/Evaluate FenceService/Read InspectService/Inspect InspectService/List InspectService/GetSession WatchService/Watch AdminService/Backup`,
})

// mayWait are the calls that may wait for a hold.
var mayWait = methodSet(`LockService/Lock RWLockService/AcquireRead RWLockService/AcquireWrite RWLockService/Upgrade
	SemaphoreService/Acquire ElectionService/Campaign LatchService/Wait BarrierService/Arrive`)

func classTable(names map[admission.Class]string) map[string]admission.Class {
	all := map[string]admission.Class{}
	for class, list := range names {
		for name := range strings.FieldsSeq(list) {
			all["/holdfast.v1."+name] = class
		}
	}
	return all
}

// Known reports whether a full method is one of proto/holdfast/v1.
func Known(method string) bool { _, ok := classes[method]; return ok }

// classOf is the class of a full method; one that is not there only fails.
func classOf(method string) admission.Class {
	if c, ok := classes[method]; ok {
		return c
	}
	return admission.List
}
