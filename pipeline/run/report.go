package run

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"strings"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pipeline"
)

// Report tells of a run.
type Report struct {
	Ref
	Definition *pipeline.Definition
	// State is that after its last event; the reason of a run that is queued is where it stands
	// in the queue now.
	State pipeline.State
	// Events is how many there were.
	Events int
	// Runner is the owner text of the program that runs it; empty: none does.
	Runner string
	// Place is its place among those that wait, from 1, in the order in which they start if nobody joins or leaves, and Ahead the runs that have
	// the places of the pipeline; 0 and nil: it does not wait for one.
	Place int
	Ahead []string
}

// Report reads a run.
func (p *Pipelines) Report(ctx context.Context, r Ref) (Report, error) {
	v, also, err := p.loadWith(ctx, r, holdfast.GetOp(queueKey(r.Pipeline))) // else it could have got its place in between
	if err != nil {
		return Report{}, err
	}
	rep := Report{Ref: r, Definition: v.Definition, State: v.State, Events: v.Seq}
	if v.State.Status.Ended() {
		return rep, nil
	}
	q := &queue{}
	if v.State.Status == pipeline.Queued && v.Definition.Places > 0 {
		if q, err = readQueue(r.Pipeline, also[0].Entries); err != nil {
			return rep, err
		}
		rep.Place, rep.Ahead = q.before(v.Definition, r.ID)
	}
	owners, err := p.runners(ctx, r.Pipeline, append([]string{r.ID}, rep.Ahead...))
	if err != nil {
		return rep, fmt.Errorf("pipeline: find the runner of %s: %w", r, err)
	}
	if rep.Runner = owners[r.ID]; rep.Place > 0 {
		rep.State.Reason = clip(q.stand(v, owners))
	}
	return rep, nil
}

// stand is [queue.why] of a run that waits, by the runners of those that have a place.
func (q *queue) stand(v *view, owners map[string]string) string {
	lost := map[string]bool{}
	for _, id := range q.choose(func(r *queued) bool { return r.Started }) {
		lost[id] = owners[id] == ""
	}
	next, _, _ := q.next(v.Definition, nil) // an error is the same as not to know
	return q.why(v, next, lost)
}

// why says what a run waits for in the queue: the places are taken, by some that are lost
// maybe, or another is next; nothing if it is next itself.
func (q *queue) why(v *view, next string, lost map[string]bool) string {
	place, taken := q.before(v.Definition, v.ID)
	for i, id := range taken {
		if lost[id] {
			taken[i] += " (which no program runs)"
		}
	}
	s := fmt.Sprintf("it has place %d in the queue; ", place)
	switch rest := len(taken) - maxNamed; {
	case next == v.ID:
		return "" // it is about to start
	case next != "":
		return s + next + " is next"
	case rest > 0:
		return s + fmt.Sprintf("the places are taken by %s and %d more", strings.Join(taken[:maxNamed], ", "), rest)
	}
	return s + "the places are taken by " + cmp.Or(strings.Join(taken, ", "), "none")
}

// maxNamed is how many runs a reason names.
const maxNamed = 8

// before is the place of a run among those that wait, and which others have a place.
func (q *queue) before(d *pipeline.Definition, id string) (place int, ahead []string) {
	return q.turn(d, id), q.choose(func(r *queued) bool { return r.Started && r.ID != id })
}

// turn is which of those that wait a run is, in the order in which they start if nobody joins or leaves; 0: it is not there.
// One that was replaced is behind all others.
func (q *queue) turn(d *pipeline.Definition, id string) int {
	live, err := q.of(d, nil)
	if err != nil || q.find(id) < 0 {
		return 0
	}
	for place := 1; ; place++ {
		if r, more := live.Start(); !more || r.ID == id {
			return place
		}
	}
}

// List yields the runs of a pipeline that are kept, in the order of their names, without
// their definitions and places; an error is the last pair, also that some runs are damaged.
func (p *Pipelines) List(ctx context.Context, name string) iter.Seq2[Report, error] {
	return func(yield func(Report, error) bool) {
		if err := (Ref{name, "1"}).check(); err != nil {
			yield(Report{}, err)
			return
		}
		begin := Ref{name, ""}.head()
		var page []Report
		var damage []error
		for e, err := range p.space.KV().Range(ctx, begin) {
			if err != nil {
				yield(Report{}, fmt.Errorf("pipeline: list the runs of %s: %w", name, err))
				return
			}
			rep := Report{Ref: Ref{name, strings.TrimPrefix(e.Key, begin)}}
			if err := rep.read(e.Value); err != nil {
				damage = append(damage, rep.Ref.damaged(err))
				continue
			}
			if page = append(page, rep); len(page) == listedAtOnce {
				if !p.yieldPage(ctx, page, yield) {
					return
				}
				page = nil
			}
		}
		if p.yieldPage(ctx, page, yield) && len(damage) > 0 {
			yield(Report{}, errors.Join(damage...))
		}
	}
}

// listedAtOnce is for how many runs of a list the runners are found in one request.
const listedAtOnce = 100

func (rep *Report) read(head []byte) error {
	var rec record
	err := json.Unmarshal(head, &rec)
	rep.State, rep.Events = rec.State, rec.Seq
	return err
}

// yieldPage adds the runners, and yields.
func (p *Pipelines) yieldPage(ctx context.Context, page []Report, yield func(Report, error) bool) bool {
	var going []*Report
	var ids []string
	for i := range page {
		if rep := &page[i]; !rep.State.Status.Ended() {
			going, ids = append(going, rep), append(ids, rep.ID)
		}
	}
	if len(ids) > 0 {
		owners, err := p.runners(ctx, going[0].Pipeline, ids)
		if err != nil {
			yield(Report{}, fmt.Errorf("pipeline: find the runners of %s: %w", going[0].Pipeline, err))
			return false
		}
		for i, rep := range going {
			rep.Runner = owners[ids[i]]
		}
	}
	for _, rep := range page {
		if !yield(rep, nil) {
			return false
		}
	}
	return true
}

// Events are the last events of a run, at most [MaxEvents], the oldest first.
func (p *Pipelines) Events(ctx context.Context, r Ref) ([]pipeline.Event, error) {
	v, err := p.load(ctx, r)
	if err != nil {
		return nil, err
	}
	return p.log(ctx, r, max(v.Seq-MaxEvents, 0), v.Seq)
}

// Cancel ends a run; a command that runs is ended first, by its runner. If that is known to
// be lost, the run has ended with Cancel; if it was lost within its TTL, cancel once more.
func (p *Pipelines) Cancel(ctx context.Context, r Ref, reason string) error {
	v, err := p.say(ctx, r, func(*view) (pipeline.Event, error) {
		return pipeline.Event{Kind: pipeline.Cancel, Reason: reason}, nil
	})
	if err != nil || v.State.Status.Ended() {
		return err
	}
	return p.takeFromLost(ctx, r)
}

// takeFromLost ends what a lost runner was to stop.
func (p *Pipelines) takeFromLost(ctx context.Context, r Ref) error {
	l, err := p.space.Election(r.election()).TryCampaign(ctx, nil)
	if errors.Is(err, holdfast.ErrHeld) {
		return nil // its runner does it
	}
	if err != nil {
		return fmt.Errorf("pipeline: cancel %s: %w", r, err)
	}
	defer l.Resign()
	v, err := p.load(ctx, r)
	if err != nil || v.State.Status.Ended() {
		return err
	}
	return p.takeOver(ctx, v, l)
}

// takeOver is the first event of a runner. What others have written meanwhile is only read:
// it may be of the runner before, which did what follows from it. A run that a later runner
// has taken over is that one's.
func (p *Pipelines) takeOver(ctx context.Context, v *view, l *holdfast.Leadership) error {
	for {
		if v.Token > uint64(l.Token()) {
			return fmt.Errorf("pipeline: %s has a later runner: %w", v.Ref, holdfast.ErrLost)
		}
		effects, err := p.put(ctx, v, pipeline.Event{Kind: pipeline.TakenOver}, func(r *record) { r.Token = uint64(l.Token()) })
		if !errors.Is(err, errChanged) {
			v.effects = effects
			return err
		}
		now, err := p.load(ctx, v.Ref)
		if err != nil {
			return err
		}
		if *v = *now; v.State.Status.Ended() {
			return nil
		}
	}
}

// Answer says how a command ended that nobody saw the end of. A run that does not ask is
// not changed, and the error is an [fs.ErrInvalid].
func (p *Pipelines) Answer(ctx context.Context, r Ref, a pipeline.Answer) error {
	_, err := p.say(ctx, r, func(v *view) (pipeline.Event, error) {
		if v.State.Status != pipeline.Unknown {
			return pipeline.Event{}, fmt.Errorf("pipeline: %s does not ask: it is %s: %w", r, v.State.Status, fs.ErrInvalid)
		}
		return pipeline.Event{Kind: pipeline.Answered, Phase: v.State.Phase, Attempt: v.State.Attempt, Answer: a}, nil
	})
	return err
}

// say writes an event for the runner of a run.
func (p *Pipelines) say(ctx context.Context, r Ref, event func(*view) (pipeline.Event, error)) (*view, error) {
	for {
		v, err := p.load(ctx, r)
		if err != nil {
			return nil, err
		}
		e, err := event(v)
		if err != nil {
			return nil, err
		}
		if _, _, err := v.Definition.Step(v.State, e); err != nil {
			return nil, fmt.Errorf("%w: %w", err, fs.ErrInvalid)
		}
		if _, err = p.put(ctx, v, e, nil); !errors.Is(err, errChanged) {
			return v, err
		}
	}
}
