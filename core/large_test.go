package core_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/core"
)

// Stories with thousands of everything: what is right for three is not yet right
// for three thousand.

// drained applies bare entries while something is due, and returns how many it took.
func (r *rig) drained() (entries int) {
	for {
		if due, ok := r.m.Due(); !ok || due > r.now {
			return entries
		}
		r.apply(core.Entry{Now: r.now})
		entries++
	}
}

// put writes keys, as many to a transaction as there may be.
func (r *rig) put(id core.SessionID, keys []string, lease core.SessionID) {
	for len(keys) > 0 {
		n := min(len(keys), 128)
		ops := make([]core.KeyOp, n)
		for i, k := range keys[:n] {
			ops[i] = core.KeyOp{Kind: core.KeyPut, Key: k, Lease: lease}
		}
		if res := r.do(id, core.Command{Op: core.OpTxn, Then: ops}); res.Code != core.CodeOK {
			panic(res.Text)
		}
		keys = keys[n:]
	}
}

// count is how many keys have the prefix.
func (r *rig) count(prefix string) uint64 {
	c := core.Command{Op: core.OpTxn, Then: []core.KeyOp{{Key: prefix, Prefix: true, KeysOnly: true}}}
	res := r.m.Read("", &c)
	return res.Keys[0].Count
}

// TestLeaseOfManyKeys: a lease with any number of keys, put in either order, ends
// with all of them, however it ends.
func TestLeaseOfManyKeys(t *testing.T) {
	ends := map[string]func(r *rig, by, lease core.SessionID){
		"end":    func(r *rig, _, lease core.SessionID) { r.do(lease, core.Command{Op: core.OpEnd}) },
		"revoke": func(r *rig, by, lease core.SessionID) { r.do(by, core.Command{Op: core.OpRevoke, Session: lease}) },
		"expiry": func(r *rig, _, _ core.SessionID) { r.now = int64(time.Minute) },
	}
	for name, end := range ends {
		for _, n := range []int{93, 1922, 3722, 12_000} {
			for _, down := range []bool{false, true} {
				t.Run(fmt.Sprint(name, n, down), func(t *testing.T) {
					r := newRig(core.Config{})
					by, lease := r.open(1, time.Hour), r.open(2, time.Minute)
					keys := make([]string, n)
					for i := range keys {
						at := i
						if down {
							at = n - 1 - i
						}
						keys[i] = fmt.Sprintf("service/%06d", at)
					}
					r.put(lease, keys, lease)
					r.put(by, []string{"service/mine"}, core.SessionID{})
					end(r, by, lease)
					r.drained()
					if left := r.count("service/"); left != 1 {
						t.Errorf("%d keys are left of %d, want the one without a lease", left, n)
					}
				})
			}
		}
	}
}
