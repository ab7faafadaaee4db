//go:build unix

package run_test

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/internal/backends"
	"github.com/holdfast-io/holdfast/pipeline"
	"github.com/holdfast-io/holdfast/pipeline/run"
)

var resumes = flag.Int("run.resumes", 10, "how many times a pipeline resumes in TestResumes, on each backend")

// A pipeline that is blocked on a key goes on when the key is put, with the re-check an hour away: measured from the put to the
// start of its command, and beside it, for the same put, a bare Watch. Another pipeline is blocked all the time and keeps the
// runner's watch.
func TestResumes(t *testing.T) {
	for _, backend := range backends.All {
		t.Run(backend, func(t *testing.T) {
			s, other := backends.Open(t, backend)
			started, told := make(chan time.Time, 1), putsOf(t, other)
			p := pipelines(t, run.Config{Space: s, Runner: commands(func(*run.Command) (run.Exit, error) {
				started <- time.Now()
				return run.Exit{}, nil
			})})
			_, leave := waitsFor(t, p, "go/never")
			defer leave()
			var resumed, watched []time.Duration
			for i := range 1 + *resumes { // the first widens the watch
				after, bare := resume(t, p, other, fmt.Sprint("go/", i), started, told)
				resumed, watched = append(resumed, after), append(watched, bare)
			}
			p50, p99 := quantiles(resumed[1:])
			w50, w99 := quantiles(watched[1:])
			t.Logf("proof: %s: a blocked pipeline starts its command after p50 %s, p99 %s; a bare Watch tells after %s, %s; %d resumes", backend, p50, p99, w50, w99, *resumes)
		})
	}
}

// resume is how long after a put a pipeline that waits for it has started its command, and a watch has told.
func resume(t *testing.T, p *run.Pipelines, s *holdfast.Space, key string, started, told <-chan time.Time) (resumed, watched time.Duration) {
	t.Helper()
	ended, leave := waitsFor(t, p, key)
	defer leave()
	began := time.Now()
	_, err := s.KV().Put(t.Context(), key, nil)
	ok(t, err)
	resumed, watched = within(t, started).Sub(began), within(t, told).Sub(began)
	ok(t, within(t, ended))
	return resumed, watched
}

// waitsFor is a run that is blocked on a key.
func waitsFor(t *testing.T, p *run.Pipelines, key string) (ended <-chan error, leave func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, done, over := submit(t, p, release(pipeline.NewPhase("deploy", "./deploy").WithPre(guard.KeyExists(key)))), make(chan error, 1), make(chan struct{})
	go func() {
		defer close(over)
		_, err := p.Run(ctx, r)
		done <- err
	}()
	until(t, p, r, func(rep *run.Report) bool { return rep.State.Reason != "" })
	return done, func() { cancel(); <-over }
}

// within is what comes, though the re-check is an hour away.
func within[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(30 * time.Second):
		t.Fatal("nothing has come of the event for 30 s")
		panic("not reached")
	}
}

// putsOf tells when a watch tells of a put.
func putsOf(t *testing.T, s *holdfast.Space) <-chan time.Time {
	t.Helper()
	puts, watching := make(chan time.Time, 1), make(chan struct{})
	go func() {
		for e, err := range s.Watch(t.Context(), "go/", 0) {
			switch {
			case err != nil:
				return
			case e.Kind == "watch" && e.Verb == "ready":
				close(watching)
			case e.Verb == "put":
				puts <- time.Now()
			}
		}
	}()
	within(t, watching)
	return puts
}

func quantiles(list []time.Duration) (p50, p99 time.Duration) {
	slices.Sort(list)
	return list[len(list)/2].Round(time.Microsecond), list[len(list)*99/100].Round(time.Microsecond)
}
