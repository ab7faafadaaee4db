package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/memhold"
	"github.com/holdfast-io/holdfast/pipeline"
	"github.com/holdfast-io/holdfast/pipeline/run"
)

// stalled is a reader that takes nothing until it is told to.
type stalled struct {
	bytes.Buffer
	goOn chan struct{}
}

func (s *stalled) Write(b []byte) (int, error) {
	<-s.goOn
	return s.Buffer.Write(b)
}

// A reader that stalls holds up neither the tree nor a command that has ended; what waits for
// it is bounded, and everything of a command comes in the end.
func TestScreen_Stalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &stalled{goOn: make(chan struct{})}
		var drawn bytes.Buffer
		s := newScreen(out, &drawn, false)
		go s.write()
		ended := make(chan struct{})
		line := []byte(strings.Repeat("x", 1023) + "\n")
		said := 0
		go func() {
			for range 400 {
				s.output(line, ended)
				said++
			}
		}()
		synctest.Wait()
		if said < maxOutput/len(line) || said > 2+maxOutput/len(line) {
			t.Errorf("%d lines of 1 KiB wait for the reader while the command runs", said)
		}
		for i := range 1000 {
			s.show(fmt.Appendf(nil, "tree %d\n", i), isTree) // it does not wait
		}
		close(ended)
		synctest.Wait()
		if said != 400 {
			t.Errorf("the command has ended, and %d lines of 400 are taken", said)
		}
		sigs := make(chan os.Signal, 1)
		sigs <- syscall.SIGINT
		if err := s.end(sigs); !errors.Is(err, signalled{syscall.SIGINT}) {
			t.Errorf("at a signal the end is %v", err)
		}
		close(out.goOn)
		if err := s.end(sigs); err != nil || out.Len() != 400*len(line) {
			t.Errorf("%d bytes of %d are written, %v", out.Len(), 400*len(line), err)
		}
		trees := strings.Split(strings.TrimSpace(drawn.String()), "\n")
		if len(trees) > maxDrawn || trees[len(trees)-1] != "tree 999" {
			t.Errorf("%d trees are shown, the last is %q", len(trees), trees[len(trees)-1])
		}
	})
}

// What daemons say after the end of their command is dropped beyond a bound.
func TestScreen_Late(t *testing.T) {
	out := &stalled{goOn: make(chan struct{})}
	s := newScreen(out, io.Discard, false)
	go s.write()
	ended := make(chan struct{})
	close(ended)
	for range 100 {
		s.output(make([]byte, 64<<10), ended)
	}
	close(out.goOn)
	if err := s.end(nil); err != nil || out.Len() > maxOutput+maxLate+2*64<<10 {
		t.Errorf("%d bytes, %v", out.Len(), err)
	}
}

// hangs is a backend that does not answer any more.
type hangs struct {
	driver.Driver
	from chan struct{}
}

func (h *hangs) Txn(ctx context.Context, r *driver.TxnRequest) (*driver.TxnReply, error) {
	if isClosed(h.from) {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	return h.Driver.Txn(ctx, r)
}

// The second signal leaves the run, also while the first waits for a backend that does not
// answer.
func TestSignals_CancelHangs(t *testing.T) { synctest.Test(t, cancelHangs) }

func cancelHangs(t *testing.T) {
	d := &hangs{Driver: memhold.New(), from: make(chan struct{})}
	s, err := holdfast.New(d)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	p, err := run.New(run.Config{Space: s})
	if err != nil {
		t.Fatal(err)
	}
	ref, err := p.Submit(t.Context(), run.Submission{Definition: &pipeline.Definition{Name: "p", Phases: []pipeline.Phase{pipeline.NewPhase("a")}}})
	if err != nil {
		t.Fatal(err)
	}
	close(d.from)
	sigs := &signals{make(chan os.Signal, 2)}
	sigs.c <- syscall.SIGINT
	sigs.c <- syscall.SIGTERM
	ctx, stop := context.WithCancelCause(t.Context())
	began := time.Now()
	asked := onSignals(ctx, sigs, p, ref, &liveTree{screen: newScreen(io.Discard, io.Discard, false)}, stop)
	if after := time.Since(began); after > 0 || !errors.Is(context.Cause(ctx), signalled{syscall.SIGTERM}) || !errors.Is(asked, signalled{syscall.SIGINT}) {
		t.Errorf("after %s it ends by %v; asked for by %v", after, context.Cause(ctx), asked)
	}
}

// What is shown of a run that goes on does not say how many events there were when it was begun.
func TestLiveTree_Events(t *testing.T) {
	var out bytes.Buffer
	tree := &liveTree{screen: newScreen(io.Discard, &out, false), json: true}
	d := &pipeline.Definition{Name: "p", Phases: []pipeline.Phase{pipeline.NewPhase("a")}}
	tree.begin(&run.Report{Ref: run.Ref{Pipeline: "p", ID: "1"}, Definition: d, State: pipeline.State{Status: pipeline.Blocked}, Events: 1})
	tree.told(run.Ref{}, pipeline.State{Status: pipeline.Running, Phase: "a"})
	if err := tree.end(nil); err != nil {
		t.Fatal(err)
	}
	if said := out.String(); !strings.Contains(said, `"running"`) || strings.Contains(said, "events") {
		t.Errorf("it says %s", said)
	}
}

// What keeps a run from going on is told in a line beside what is shown of it.
func TestLiveTree_Stalled(t *testing.T) {
	var out bytes.Buffer
	tree := &liveTree{screen: newScreen(io.Discard, &out, false)}
	tree.begin(&run.Report{Ref: run.Ref{Pipeline: "p", ID: "1"}, Definition: &pipeline.Definition{Name: "p", Phases: []pipeline.Phase{pipeline.NewPhase("a")}}, State: pipeline.State{Status: pipeline.Running, Phase: "a"}})
	tree.stalled(run.Ref{Pipeline: "p", ID: "1"}, errors.New("pipeline: write p/1: no room"))
	if err := tree.end(nil); err != nil {
		t.Fatal(err)
	}
	if said := out.String(); !strings.HasSuffix(said, "\nholdfast: p/1 does not go on: pipeline: write p/1: no room; it is tried again\n") {
		t.Errorf("it says %q", said)
	}
}

// --wait counts anew for another phase or attempt, though the status is the same.
func TestLiveTree_Wait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancelCause(t.Context())
		defer stop(nil)
		tree := &liveTree{screen: newScreen(io.Discard, io.Discard, false)}
		tree.bound(time.Minute, stop)
		defer tree.stop()
		for _, s := range []pipeline.State{
			{Status: pipeline.Blocked, Phase: "a", Attempt: 1}, {Status: pipeline.Blocked, Phase: "a", Attempt: 2},
			{Status: pipeline.Blocked, Phase: "b", Attempt: 1}, {Status: pipeline.Blocked, Phase: "b", Attempt: 1, Reason: "another"},
		} {
			tree.told(run.Ref{}, s)
			if <-time.After(40 * time.Second); ctx.Err() != nil && s.Reason == "" {
				t.Errorf("it ended in %+v, after 40 s", s)
			}
		}
		if !errors.Is(context.Cause(ctx), errBlocked) {
			t.Error("another reason counts as another wait")
		}
	})
}
