package pghold_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
)

// TestWatchKeepsPace: a watch takes events as they come, without a rest after each. With one of a
// millisecond, 2,000 events take two seconds at least in every one of five storms; it is enough if one takes less.
func TestWatchKeepsPace(t *testing.T) {
	url := database(t)
	events, kv := watched(t, open(t, url)), open(t, url).KV()
	const storm, together = 2000, 50
	took := time.Duration(0)
	for range 5 {
		go func() {
			for i := 0; i < storm; i += together {
				var puts []holdfast.Op
				for j := range together {
					puts = append(puts, holdfast.PutOp(fmt.Sprint("key ", i+j), nil))
				}
				if _, err := kv.Txn(t.Context(), holdfast.Txn{Then: puts}); err != nil {
					t.Error(err)
				}
			}
		}()
		next(t, events)
		began := time.Now()
		for range storm - 1 {
			next(t, events)
		}
		if took = time.Since(began); took < storm*time.Millisecond {
			return
		}
	}
	t.Errorf("the last of %d events came %s after the first", storm, took)
}
