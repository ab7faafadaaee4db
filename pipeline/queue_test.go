package pipeline_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/holdfast-io/holdfast/pipeline"
)

var policies = []pipeline.Policy{pipeline.FIFO, pipeline.Newest, pipeline.CancelOlder, pipeline.Priority}

// twin is the queue written as its documentation reads: two lists and scans.
type twin struct {
	policy           pipeline.Policy
	waiting, started []pipeline.Run // in the order in which they joined
	order            map[string]int
	passed           int
}

func (w *twin) join(r pipeline.Run) (replaced []pipeline.Run) {
	switch w.policy {
	case pipeline.CancelOlder:
		replaced = append(w.started, w.waiting...)
		w.started, w.waiting = nil, nil
	case pipeline.Newest:
		replaced, w.waiting = w.waiting, nil
	}
	slices.SortFunc(replaced, func(a, b pipeline.Run) int { return w.order[a.ID] - w.order[b.ID] })
	w.order[r.ID] = len(w.order)
	w.waiting = append(w.waiting, r)
	return replaced
}

func (w *twin) start() (pipeline.Run, bool) {
	if len(w.waiting) == 0 {
		return pipeline.Run{}, false
	}
	at := 0
	if w.policy == pipeline.Priority && w.passed < pipeline.MaxPassed {
		for i, r := range w.waiting {
			if r.Priority > w.waiting[at].Priority {
				at = i
			}
		}
	}
	w.passed++
	r := w.waiting[at]
	w.remove(&w.waiting, r.ID)
	w.started = append(w.started, r)
	return r, true
}

// remove forgets how often the oldest was passed over when the oldest goes.
func (w *twin) remove(list *[]pipeline.Run, id string) bool {
	at := slices.IndexFunc(*list, func(r pipeline.Run) bool { return r.ID == id })
	if at < 0 {
		return false
	}
	if at == 0 && list == &w.waiting {
		w.passed = 0
	}
	*list = slices.Delete(slices.Clone(*list), at, at+1)
	return true
}

func (w *twin) leave(id string) bool { return w.remove(&w.waiting, id) || w.remove(&w.started, id) }

func TestTwin(t *testing.T) {
	for seed := range uint64(400) {
		rng := rand.New(rand.NewPCG(seed, 4))
		policy := policies[seed%4]
		q, err := pipeline.NewQueue(policy)
		if err != nil {
			t.Fatal(err)
		}
		w := &twin{policy: policy, order: map[string]int{}}
		joins, length := 2+rng.IntN(5), 50+rng.IntN(400)
		for i := range length {
			id := fmt.Sprint("r", i)
			switch n := rng.IntN(10); {
			case n < joins:
				r := pipeline.Run{ID: id, Priority: rng.IntN(4)}
				got, err := q.Join(r)
				if want := w.join(r); err != nil || !slices.Equal(got, want) {
					t.Fatalf("seed %d, step %d, %s: %v joins: replaced %v, %v, want %v", seed, i, policy, r, got, err, want)
				}
			case n < 8:
				got, ok := q.Start()
				if want, wantOK := w.start(); got != want || ok != wantOK {
					t.Fatalf("seed %d, step %d, %s: started %v, %t, want %v, %t", seed, i, policy, got, ok, want, wantOK)
				}
			default:
				id := fmt.Sprint("r", rng.IntN(i+1))
				if got, want := q.Leave(id), w.leave(id); got != want {
					t.Fatalf("seed %d, step %d, %s: %s left: %t, want %t", seed, i, policy, id, got, want)
				}
			}
			if rng.IntN(8) == 0 { // as another runner finds it
				if q, err = pipeline.RestoreQueue(policy, q.State()); err != nil {
					t.Fatal(err)
				}
			}
			if q.Waiting() != len(w.waiting) || q.Started() != len(w.started) {
				t.Fatalf("seed %d, step %d, %s: %d wait, %d started, want %d, %d", seed, i, policy, q.Waiting(), q.Started(), len(w.waiting), len(w.started))
			}
		}
	}
}

// However many runs of higher priority join, a run with n older ones before it is started
// by the (n+1)·(MaxPassed+1)th start; the worst case meets the bound.
func TestPriorityStarvesNobody(t *testing.T) {
	for _, older := range []int{0, 1, 7, 100} {
		q, _ := pipeline.NewQueue(pipeline.Priority)
		for i := range older + 1 {
			join(t, q, pipeline.Run{ID: fmt.Sprint("low", i)})
		}
		last, bound, starts := fmt.Sprint("low", older), (older+1)*(pipeline.MaxPassed+1), 0
		for id := ""; id != last; starts++ {
			join(t, q, pipeline.Run{ID: fmt.Sprint("high", starts), Priority: 9})
			r, _ := q.Start()
			id = r.ID
			if starts > bound {
				t.Fatalf("%d older: not started after %d starts", older, starts)
			}
		}
		if starts != bound {
			t.Errorf("%d older: started by start %d, the bound is %d", older, starts, bound)
		}
	}
}

func join(t *testing.T, q *pipeline.Queue, r pipeline.Run) {
	t.Helper()
	if _, err := q.Join(r); err != nil {
		t.Fatal(err)
	}
}

func TestRefused(t *testing.T) {
	if _, err := pipeline.NewQueue("lifo"); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("an unknown policy: %v", err)
	}
	for _, policy := range policies {
		q, _ := pipeline.NewQueue(policy)
		join(t, q, pipeline.Run{ID: "a"})
		if out, err := q.Join(pipeline.Run{ID: "a"}); !errors.Is(err, fs.ErrExist) || out != nil || q.Waiting() != 1 {
			t.Errorf("%s: joined twice: %v, %v", policy, out, err)
		}
		if out, err := q.Join(pipeline.Run{}); !errors.Is(err, fs.ErrInvalid) || out != nil || q.Waiting() != 1 {
			t.Errorf("%s: joined without an ID: %v, %v", policy, out, err)
		}
		q.Start()
		if q.Leave("b") || !q.Leave("a") || q.Leave("a") {
			t.Errorf("%s: a run leaves once, if it is there", policy)
		}
		join(t, q, pipeline.Run{ID: "a"})
	}
}

// A full queue refuses, and drains in order.
func TestFull(t *testing.T) {
	for _, policy := range []pipeline.Policy{pipeline.FIFO, pipeline.Priority} {
		q, _ := pipeline.NewQueue(policy)
		for i := range pipeline.MaxWaiting {
			join(t, q, pipeline.Run{ID: fmt.Sprint(i)})
		}
		if _, err := q.Join(pipeline.Run{ID: "more"}); err == nil || q.Waiting() != pipeline.MaxWaiting {
			t.Errorf("%s: one more joined", policy)
		}
		for i := range pipeline.MaxWaiting {
			if r, ok := q.Start(); !ok || r.ID != fmt.Sprint(i) {
				t.Fatalf("%s: start %d is %v, %t", policy, i, r, ok)
			}
		}
	}
}

// Most of a thousand runs leave before they start; the others start in order.
func TestMostLeave(t *testing.T) {
	for _, policy := range []pipeline.Policy{pipeline.FIFO, pipeline.Priority} {
		q, _ := pipeline.NewQueue(policy)
		w := &twin{policy: policy, order: map[string]int{}}
		for i := range 1000 {
			r := pipeline.Run{ID: fmt.Sprint(i), Priority: i * 7919 % 100}
			join(t, q, r)
			w.join(r)
		}
		for i := range 1000 {
			if id := fmt.Sprint(i); i%10 != 0 && (!q.Leave(id) || !w.leave(id)) {
				t.Fatalf("%s: %s could not leave", policy, id)
			}
		}
		for i := range 101 {
			got, ok := q.Start()
			if want, wantOK := w.start(); got != want || ok != wantOK {
				t.Fatalf("%s: start %d is %v, %t, want %v, %t", policy, i, got, ok, want, wantOK)
			}
		}
	}
}

// The zero Queue is one with FIFO.
func TestQueue_Zero(t *testing.T) {
	var q pipeline.Queue
	if q.Leave("a") || q.Waiting() != 0 || q.Started() != 0 {
		t.Error("it has runs")
	}
	for _, id := range []string{"b", "a"} {
		if replaced, err := q.Join(pipeline.Run{ID: id}); err != nil || replaced != nil {
			t.Fatalf("%q joins: %v, %v", id, replaced, err)
		}
	}
	if r, ok := q.Start(); !ok || r.ID != "b" {
		t.Errorf("%+v starts", r)
	}
}

// A state that no queue has is refused.
func TestRestoreQueue_Refuses(t *testing.T) {
	run := func(id string) pipeline.QueuedRun { return pipeline.QueuedRun{Run: pipeline.Run{ID: id}} }
	for _, s := range []pipeline.QueueState{{Passed: -1}, {Runs: []pipeline.QueuedRun{run("")}}, {Runs: []pipeline.QueuedRun{run("1"), run("2"), run("1")}}} {
		if _, err := pipeline.RestoreQueue(pipeline.Priority, s); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("%+v: %v", s, err)
		}
	}
}
