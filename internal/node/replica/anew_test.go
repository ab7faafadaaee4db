package replica_test

import (
	"math"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/replica"
)

// The longest wait that can be asked for is a wait: with the cluster time of the old state
// it does not become one that is over.
func TestAnew_LongestWait(t *testing.T) {
	m := core.New(core.Config{})
	if err := m.Apply(core.AppendEntry(nil, &core.Entry{Version: 3, Now: int64(time.Hour)}), nil); err != nil {
		t.Fatal(err)
	}
	rec, err := replica.Anew(m, replica.Endpoint{ID: 1}, time.Unix(1<<30, 0), math.MaxInt64)
	if err != nil || rec.Snapshot.Conf.Held < m.Now() {
		t.Errorf("nothing is granted until %d, at %d: %v", rec.Snapshot.Conf.Held, m.Now(), err)
	}
}
