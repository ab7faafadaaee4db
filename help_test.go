package holdfast_test

import (
	"errors"
	"io/fs"
	"runtime"
	"strings"
	"testing"
)

func goroutines() int { return runtime.NumGoroutine() }

func heapObjects() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapObjects)
}

// wantInvalid checks for a refusal of bad input whose text has part in it.
func wantInvalid(t testing.TB, err error, part string) {
	t.Helper()
	if !errors.Is(err, fs.ErrInvalid) || !strings.Contains(err.Error(), part) {
		t.Errorf("error is %v; want fs.ErrInvalid with %q", err, part)
	}
}
