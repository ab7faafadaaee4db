package fence_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/holdfast-io/holdfast/fence"
)

func BenchmarkGateCheck(b *testing.B) {
	var g fence.Gate
	token := fence.Token(0)
	for b.Loop() {
		token++
		g.Check("r", token, fence.Exclusive)
	}
}

func BenchmarkGateDo(b *testing.B) {
	var g fence.Gate
	token := fence.Token(0)
	for b.Loop() {
		token++
		g.Do(b.Context(), "r", token, fence.Exclusive, nothing)
	}
}

// BenchmarkGateMemory tells what a remembered resource costs beside its name.
func BenchmarkGateMemory(b *testing.B) {
	names := make([]string, 1<<16)
	for i := range names {
		names[i] = fmt.Sprint("resource/", i)
	}
	for b.Loop() {
		before := heap()
		g := &fence.Gate{}
		for _, name := range names {
			g.Check(name, 1, fence.Exclusive)
		}
		b.ReportMetric(float64(heap()-before)/float64(g.Len()), "B/resource")
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkDirDo pays two syncs for each new token.
func BenchmarkDirDo(b *testing.B) {
	d := &fence.Dir{Path: b.TempDir()}
	token := fence.Token(0)
	for b.Loop() {
		token++
		d.Do(b.Context(), "r", token, fence.Exclusive, nothing)
	}
}
