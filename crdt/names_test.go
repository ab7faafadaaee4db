package crdt

import (
	"fmt"
	"runtime"
	"testing"
)

// TestBytesOfRetiredActors: names that are never used again stay; docs/limits.md tells what that costs a counter.
func TestBytesOfRetiredActors(t *testing.T) {
	for _, names := range []int{1_000, 10_000} {
		before := heap()
		var c GCounter
		for i := range names {
			c.Add(Actor{fmt.Sprintf("web-7f9c4d8b6-%05d", i), 1_760_000_000_000_000_000}, 1000)
		}
		held, state := heap()-before, len(c.Append(nil))
		t.Logf("proof: crdt: %d retired names: %d bytes of memory and %d of state a counter", names, held, state)
		if state > 32*names || held > 100*uint64(names) {
			t.Errorf("%d names take %d bytes of memory and %d of state", names, held, state)
		}
		runtime.KeepAlive(c)
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
