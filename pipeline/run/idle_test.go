//go:build unix

package run_test

import (
	"context"
	"flag"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/internal/backends"
	"github.com/holdfast-io/holdfast/pipeline"
	"github.com/holdfast-io/holdfast/pipeline/run"
)

var (
	blocked = flag.Int("run.blocked", 50, "how many runs TestIdle blocks")
	idle    = flag.Duration("run.idle", time.Second, "how long TestIdle measures them; a minute or more is judged")
)

// mostIdle is the most of a core that blocked runs take.
const mostIdle = 0.005

// Runs that are blocked on a key take next to nothing of the processor, with the re-checks of
// the default; each goes on when its key comes.
func TestIdle(t *testing.T) {
	s, other := backends.Open(t, "memory")
	p := pipelines(t, run.Config{Space: s, Recheck: 30 * time.Second})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all sync.WaitGroup
	var refs []run.Ref
	for i := range *blocked {
		r := submit(t, p, release(pipeline.NewPhase("deploy").WithPre(guard.KeyExists(fmt.Sprint("go/", i)))))
		refs = append(refs, r)
		all.Go(func() { _, _ = p.Run(ctx, r) })
	}
	for _, r := range refs {
		until(t, p, r, func(rep *run.Report) bool { return rep.State.Reason != "" })
	}
	before, began := processor(t), time.Now()
	select {
	case <-time.After(*idle):
	case <-ctx.Done():
	}
	took := (processor(t) - before).Seconds() / time.Since(began).Seconds()
	t.Logf("proof: %d blocked pipelines take %.3f %% of a core over %s", *blocked, 100*took, *idle)
	if *idle >= time.Minute && took > mostIdle {
		t.Errorf("that is more than %.1f %%", 100*mostIdle)
	}
	for i := range refs {
		_, err := other.KV().Put(t.Context(), fmt.Sprint("go/", i), nil)
		ok(t, err)
	}
	all.Wait()
	for _, r := range refs {
		until(t, p, r, status(pipeline.Done))
	}
}

// processor is the time of it that this program has had.
func processor(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	ok(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
