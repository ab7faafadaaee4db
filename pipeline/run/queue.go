package run

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pipeline"
)

// queue is what a pipeline knows of its runs together. It is one key, and every change of
// it is one transaction with the event that it is about.
type queue struct {
	// Next is the number of the next run, and Ended how many have ended.
	Next  int `json:"next"`
	Ended int `json:"ended,omitempty"`
	// Runs are those that wait or have a place, in the order in which they joined; none
	// if there is a place for every run.
	Runs   []queued `json:"runs,omitempty"`
	Passed int      `json:"passed,omitempty"`

	rev holdfast.Revision
}

type queued struct {
	pipeline.QueuedRun
	// Replaced: a newer run took its turn; it has to end, and keeps its place until then.
	Replaced bool `json:"replaced,omitempty"`
	// At is when it joined, in milliseconds.
	At int64 `json:"at"`
	// Lost is since when it was seen without a runner while it waited, in seconds; 0: it was
	// not, or has had one since. Of a run that waits only, so that a full queue stays as small.
	Lost int64 `json:"lost,omitempty"`
}

func queueKey(name string) string        { return prefix + name + "/queue" }
func endedKey(name string, n int) string { return fmt.Sprintf("%s%s/ended/%012d", prefix, name, n) }

// loadQueue reads the queue of a pipeline; one that has never had a run is empty.
func (p *Pipelines) loadQueue(ctx context.Context, name string) (*queue, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	e, err := p.space.KV().Get(ctx, queueKey(name))
	switch {
	case errors.Is(err, holdfast.ErrNotFound):
		return readQueue(name, nil)
	case err != nil:
		return nil, fmt.Errorf("pipeline: read the queue of %s: %w", name, err)
	}
	return readQueue(name, []holdfast.Entry{e})
}

// readQueue reads the entry of a queue, if there is one.
func readQueue(name string, entries []holdfast.Entry) (*queue, error) {
	q := &queue{Next: 1}
	for _, e := range entries {
		q.rev = e.Modified
		if err := json.Unmarshal(e.Value, q); err != nil {
			return nil, fmt.Errorf("pipeline: read the queue of %s: %w", name, err)
		}
	}
	return q, nil
}

// write is the transaction that keeps the queue.
func (q *queue) write(name string) (t holdfast.Txn, err error) {
	t.If = []holdfast.Compare{holdfast.ModifiedAt(queueKey(name), q.rev)}
	return t, addPut(&t, queueKey(name), q)
}

func (q *queue) find(id string) int {
	return slices.IndexFunc(q.Runs, func(r queued) bool { return r.ID == id })
}

// join adds a run, and marks those that it replaces.
func (q *queue) join(d *pipeline.Definition, r pipeline.Run, at time.Time) (replaced []string, err error) {
	if len(q.Runs) >= MaxRuns {
		return nil, fmt.Errorf("%d runs wait or go on, and more are not possible: submit it again when some have ended: %w", len(q.Runs), holdfast.ErrExhausted)
	}
	live, err := q.of(d, nil)
	if err != nil {
		return nil, err
	}
	gone, err := live.Join(r)
	if err != nil {
		return nil, err
	}
	for _, g := range gone {
		old := &q.Runs[q.find(g.ID)]
		old.Replaced, old.Lost = true, 0
		replaced = append(replaced, g.ID)
	}
	q.Runs = append(q.Runs, queued{QueuedRun: pipeline.QueuedRun{Run: r}, At: at.UnixMilli()})
	return replaced, nil
}

// of is the queue without what was replaced, and without the runs that are left out.
func (q *queue) of(d *pipeline.Definition, without map[string]bool) (*pipeline.Queue, error) {
	s := pipeline.QueueState{Passed: q.Passed}
	for _, r := range q.Runs {
		if !r.Replaced && !without[r.ID] {
			s.Runs = append(s.Runs, r.QueuedRun)
		}
	}
	return pipeline.RestoreQueue(cmp.Or(d.Policy, pipeline.FIFO), s)
}

// places is how many runs have one.
func (q *queue) places() (n int) {
	for _, r := range q.Runs {
		if r.Started {
			n++
		}
	}
	return n
}

// next is the run that starts next, of those that are not left out, and how often the
// oldest is passed over then; empty: there is no place, or nobody waits.
func (q *queue) next(d *pipeline.Definition, without map[string]bool) (id string, passed int, err error) {
	if q.places() >= d.Places {
		return "", 0, nil
	}
	live, err := q.of(d, without)
	if err != nil {
		return "", 0, err
	}
	r, _ := live.Start()
	return r.ID, live.State().Passed, nil
}

// queueAfter is what an event does to the queue, as a part of its transaction: a run that is
// admitted has its place, one that has ended leaves, and the oldest of those that ended
// long ago are deleted.
func (p *Pipelines) queueAfter(ctx context.Context, v *view, e *pipeline.Event, rec *record) (holdfast.Txn, error) {
	q, err := p.loadQueue(ctx, v.Pipeline)
	if err != nil {
		return holdfast.Txn{}, err
	}
	i := q.find(v.ID)
	if !rec.State.Status.Ended() {
		if v.Definition.Places == 0 {
			return holdfast.Txn{}, nil
		}
		id, passed, err := q.next(v.Definition, p.abandoned(ctx, v, q))
		if err != nil || id != v.ID {
			return holdfast.Txn{}, errors.Join(err, errNotYet)
		}
		q.Runs[i].Started, q.Runs[i].Lost, q.Passed = true, 0, passed
		return q.write(v.Pipeline)
	}
	q.leave(i)
	q.Ended++
	t, err := q.write(v.Pipeline)
	t.Then = append(t.Then, holdfast.PutOp(endedKey(v.Pipeline, q.Ended), []byte(v.ID)))
	if err == nil && q.Ended > p.keep {
		err = p.trim(ctx, &t, v.Pipeline, endedKey(v.Pipeline, q.Ended-p.keep))
	}
	return t, err
}

// errNotYet: it is another's turn.
var errNotYet = errors.New("it waits for a place")

// leave takes the run with an index out, if there is one. How often the oldest that waits was
// passed over is known of that one alone: the next begins anew.
func (q *queue) leave(i int) {
	if i < 0 {
		return
	}
	if i == slices.IndexFunc(q.Runs, func(r queued) bool { return r.waits() }) {
		q.Passed = 0
	}
	q.Runs = slices.Delete(q.Runs, i, i+1)
}

// trimmed is how many runs are deleted with the end of one: more than one, so that the others go
// too after fewer than before are kept, and few, since each takes many operations.
const trimmed = 3

// trim deletes the oldest of the runs that have ended, up to the one with that key.
func (p *Pipelines) trim(ctx context.Context, t *holdfast.Txn, name, last string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	oldest, err := p.space.KV().Page(ctx, prefix+name+"/ended/", holdfast.MaxKeys(trimmed))
	for _, e := range oldest.Entries {
		if e.Key <= last {
			t.Then = append(t.Then, holdfast.DeleteOp(e.Key))
			t.Then = append(t.Then, forget(Ref{name, string(e.Value)})...)
		}
	}
	return err
}

// settling is how long after it joined a run counts as one that has a runner, though none
// has campaigned for it yet; by the clocks of two machines, so before it joined, too.
const settling = 10 * time.Second

// settles is how long that is yet, as far as the clocks agree; 0 or less: it is over. One that
// joined after now counts, too.
func (p *Pipelines) settles(r *queued) time.Duration {
	return settling - p.now().Sub(time.UnixMilli(r.At)).Abs()
}

// abandoned are the runs before v that wait and have no runner: they are passed over, until
// somebody runs them. It asks about few if the first has one, and about all in few requests.
func (p *Pipelines) abandoned(ctx context.Context, v *view, q *queue) map[string]bool {
	without := map[string]bool{}
	for n := 1; ; n *= 8 {
		ahead := ahead(v, q, without, n)
		lost, err := p.withoutRunner(ctx, v.Pipeline, q, ahead)
		for _, id := range ahead {
			if err != nil || !lost[id] {
				return without
			}
			without[id] = true
		}
		if len(ahead) < n {
			return without
		}
	}
}

// ahead are up to n runs that would start before v, those left out aside.
func ahead(v *view, q *queue, without map[string]bool, n int) (ids []string) {
	without = maps.Clone(without)
	for len(ids) < n {
		id, _, err := q.next(v.Definition, without)
		if err != nil || id == v.ID || id == "" {
			break
		}
		ids, without[id] = append(ids, id), true
	}
	return ids
}

// withoutRunner are those that no program runs: one has, and runs it no more, or they have had
// the time to find one.
func (p *Pipelines) withoutRunner(ctx context.Context, name string, q *queue, ids []string) (map[string]bool, error) {
	young := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return p.settles(&q.Runs[q.find(id)]) <= 0 })
	// Asked for before the runners: a run that finds its runner in between has one.
	had, err := p.hadRunner(ctx, name, young)
	if err != nil {
		return nil, err
	}
	owners, err := p.runners(ctx, name, ids)
	if err != nil {
		return nil, err
	}
	lost := map[string]bool{}
	for _, id := range ids {
		lost[id] = owners[id] == "" && (had[id] || !slices.Contains(young, id))
	}
	return lost, nil
}

// hadRunner are those that a program has run: something was written of them since they were
// submitted.
func (p *Pipelines) hadRunner(ctx context.Context, name string, ids []string) (map[string]bool, error) {
	had := map[string]bool{}
	for some := range slices.Chunk(ids, sweepAtOnce) {
		heads, err := p.heads(ctx, name, some)
		if err != nil {
			return nil, err
		}
		for i, id := range some {
			had[id] = heads[i].Version > 1
		}
	}
	return had, nil
}

// heads are the heads of some runs without their values, at most sweepAtOnce; an empty one is
// not there.
func (p *Pipelines) heads(ctx context.Context, name string, ids []string) ([]holdfast.Entry, error) {
	var t holdfast.Txn
	for _, id := range ids {
		t.Then = append(t.Then, headOp(Ref{name, id}.head()))
	}
	res, err := p.txn(ctx, t)
	if err != nil {
		return nil, err
	}
	heads := make([]holdfast.Entry, len(ids))
	for i, id := range ids {
		if e := res.Results[i].Entries; len(e) > 0 && e[0].Key == (Ref{name, id}).head() {
			heads[i] = e[0]
		}
	}
	return heads, nil
}

// runners are the owner texts of the programs that run the runs, without those that none runs.
func (p *Pipelines) runners(ctx context.Context, name string, ids []string) (map[string]string, error) {
	owners := map[string]string{}
	for some := range slices.Chunk(ids, inspected) {
		if err := p.runnersOf(ctx, name, some, owners); err != nil {
			return owners, err
		}
	}
	return owners, nil
}

// inspected is how many elections are inspected within one patience: some backends need a
// request for each.
const inspected = 32

func (p *Pipelines) runnersOf(ctx context.Context, name string, ids []string, owners map[string]string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	elections := make([]string, len(ids))
	for i, id := range ids {
		elections[i] = Ref{name, id}.election()
	}
	all, _, err := p.space.InspectAll(ctx, elections...)
	for i := range all {
		if h := all[i].Holders; len(h) > 0 {
			owners[ids[i]] = cmp.Or(h[0].Owner, "?")
		}
	}
	return err
}

// choose are the names of some runs, in the order in which they joined.
func (q *queue) choose(is func(*queued) bool) (ids []string) {
	for i := range q.Runs {
		if is(&q.Runs[i]) {
			ids = append(ids, q.Runs[i].ID)
		}
	}
	return ids
}

// endLost ends the runs that are to end and have lost their runner: they would keep their
// places. What does not succeed is tried again with the next look at the queue. It answers with
// all that have no runner.
func (p *Pipelines) endLost(ctx context.Context, name string, q *queue) map[string]bool {
	ids := q.choose(func(r *queued) bool { return r.Started || r.Replaced })
	owners, err := p.runners(ctx, name, ids)
	lost := map[string]bool{}
	for _, id := range ids {
		if err != nil || owners[id] != "" {
			continue
		}
		lost[id] = true
		r := Ref{name, id}
		v, err := p.load(ctx, r)
		switch {
		case err != nil:
		case q.Runs[q.find(id)].Replaced:
			_ = p.Cancel(ctx, r, "a newer run replaces it")
		case v.State.Status == pipeline.Stopping:
			_ = p.takeFromLost(ctx, r)
		}
	}
	return lost
}

// The bounds of making room in a queue that is full.
const (
	// lostAfter is how long a run has been seen without a runner that makes room: longer than
	// a runner is away that is cut off for a moment, or restarted with its machine.
	lostAfter = 10 * time.Minute
	// maxLost is how many make room at once.
	maxLost = 16
)

// makeRoom ends runs of a full queue that have lost their runner: those that are to end, and
// the oldest of those that wait and were without one at an earlier look, long ago, and now.
func (p *Pipelines) makeRoom(ctx context.Context, name string) error {
	q, err := p.loadQueue(ctx, name)
	if err != nil || len(q.Runs) < MaxRuns {
		return err
	}
	p.endLost(ctx, name, q)
	owners, err := p.runners(ctx, name, q.choose((*queued).waits))
	if err != nil {
		return err
	}
	lost, err := p.noteLost(ctx, name, q, owners)
	for _, id := range lost[:min(maxLost, len(lost))] {
		e := p.Cancel(ctx, Ref{name, id}, "no program ran it, and the queue was full")
		if !errors.Is(e, fs.ErrInvalid) && !errors.Is(e, fs.ErrNotExist) && !errors.Is(e, errDamaged) { // else another was faster, or nobody can
			err = errors.Join(err, e)
		}
	}
	return err
}

func (r *queued) waits() bool { return !r.Started && !r.Replaced }

// noteLost notes for the looks after this one which runs wait without a runner, and tells
// those of which earlier looks have told that for long. Another's note that is made at the
// same time is as good.
func (p *Pipelines) noteLost(ctx context.Context, name string, q *queue, owners map[string]string) (lost []string, err error) {
	now, changed := p.now().Unix(), false
	for i := range q.Runs {
		r := &q.Runs[i]
		was := r.Lost
		switch {
		case !r.waits() || owners[r.ID] != "":
			r.Lost = 0
		case was == 0 || was > now: // that clock was ahead of ours
			r.Lost = now
		case now-was >= int64(lostAfter/time.Second):
			lost = append(lost, r.ID)
		}
		changed = changed || r.Lost != was
	}
	if changed {
		err = p.keepQueue(ctx, name, q)
	}
	return lost, err
}

// keepQueue writes the queue, unless another has changed it.
func (p *Pipelines) keepQueue(ctx context.Context, name string, q *queue) error {
	t, err := q.write(name)
	if err == nil {
		_, err = p.txn(ctx, t)
	}
	return err
}
