package run

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/guard/gather"
	"github.com/holdfast-io/holdfast/limit"
	"github.com/holdfast-io/holdfast/pipeline"
)

// Submission is a run that is to be.
type Submission struct {
	Definition *pipeline.Definition
	// ID names the run among those of its pipeline; empty: the next number.
	ID string
	// Priority counts under the policy priority.
	Priority int
	// Params are told to the commands as HOLDFAST_PARAM_name.
	Params map[string]string
}

// Submit makes a run, which waits until it is run: see [Pipelines.Run]. Runs that it
// replaces by the policy of its pipeline are cancelled. A condition with a part that the sources of the Gatherer
// could never look for is refused: see [gather.Gatherer.Check].
func (p *Pipelines) Submit(ctx context.Context, s Submission) (Ref, error) {
	if err := p.check(&s); err != nil {
		return Ref{}, err
	}
	e := pipeline.Event{Kind: pipeline.Submitted, At: p.now()}
	state, effects, err := s.Definition.Step(pipeline.State{}, e)
	if err != nil {
		return Ref{}, err
	}
	v := &view{plan: plan{s.Definition, s.Params}, record: record{State: state, Seq: 1}}
	replaced, err := p.join(ctx, v, &s, &e, effects)
	if errors.Is(err, holdfast.ErrExhausted) && s.Definition.Places > 0 {
		if e2 := p.makeRoom(ctx, s.Definition.Name); e2 == nil {
			replaced, err = p.join(ctx, v, &s, &e, effects)
		}
	}
	if err != nil {
		return Ref{}, fmt.Errorf("pipeline: submit a run of %s: %w", s.Definition.Name, err)
	}
	for _, id := range replaced { // one that has a runner ends itself if this does not succeed
		_ = p.Cancel(ctx, Ref{v.Pipeline, id}, "the newer run "+v.ID+" replaces it")
	}
	return v.Ref, nil
}

// join writes the first event of a run, and its place in the queue.
func (p *Pipelines) join(ctx context.Context, v *view, s *Submission, e *pipeline.Event, effects []pipeline.Effect) (replaced []string, err error) {
	leave, err := p.turn(ctx, s.Definition.Name)
	if err != nil {
		return nil, err
	}
	defer leave()
	taken, last := 0, holdfast.Revision(0) // numbers that runs were named by, from the next one on
	v.By = rand.Text()                     // of all tries: one that was done without an answer is found by it
	for try := 0; ; try++ {
		q, err := p.loadQueue(ctx, s.Definition.Name)
		if err != nil {
			return nil, err
		}
		if try > 0 { // after the queue was read: what is done later finds another one
			if done, err := p.made(ctx, v); done || err != nil && !errors.Is(err, fs.ErrExist) {
				return replaced, err
			}
		}
		if q.rev != last {
			taken = 0 // another run has got a number meanwhile
		}
		v.Ref = Ref{s.Definition.Name, s.ID}
		if s.ID == "" {
			v.ID = strconv.Itoa(q.Next + taken)
			q.Next += taken + 1
		}
		if s.Definition.Places > 0 {
			if replaced, err = q.join(s.Definition, pipeline.Run{ID: v.ID, Priority: s.Priority}, e.At); err != nil {
				return nil, err
			}
		}
		done, err := p.create(ctx, v, q, e, effects)
		switch {
		case errors.Is(err, fs.ErrExist) && s.ID == "":
			taken++
			last = q.rev
		case done || err != nil:
			return replaced, err
		case !pause(ctx, try):
			return nil, context.Cause(ctx)
		}
	}
}

// create writes the keys of a new run; false: the queue has changed meanwhile.
func (p *Pipelines) create(ctx context.Context, v *view, q *queue, e *pipeline.Event, effects []pipeline.Effect) (bool, error) {
	t, err := q.write(v.Pipeline)
	err = errors.Join(err, addPut(&t, v.head(), &v.record), addPut(&t, v.definition(), &v.plan), addPut(&t, v.event(1), e))
	if err != nil {
		return false, err
	}
	t.If = append(t.If, holdfast.Absent(v.head()))
	t.Then = append(t.Then, p.tellings(v, e, &v.record, effects)...)
	res, err := p.txn(ctx, t)
	if err == nil && res.OK || err != nil && !passing(err) {
		return err == nil, err
	}
	return p.made(ctx, v)
}

// made reports that this Submit has made the run; ErrExist: another has.
func (p *Pipelines) made(ctx context.Context, v *view) (bool, error) {
	now, err := p.load(ctx, v.Ref)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err == nil && now.By != v.By:
		return false, fmt.Errorf("there is a run %q: %w", v.ID, fs.ErrExist)
	}
	return err == nil, err
}

// check refuses what could not be run.
func (p *Pipelines) check(s *Submission) error {
	if err := s.Check(); err != nil {
		return err
	}
	d := s.Definition
	if err := p.canRun(d); err != nil {
		return err
	}
	for i := range d.Phases {
		if err := p.checkPhase(&d.Phases[i]); err != nil {
			return fmt.Errorf("pipeline %q: phase %q: %w", d.Name, d.Phases[i].Name, err)
		}
	}
	return nil
}

// Check says what is wrong with a submission whatever the backend, as an [fs.ErrInvalid]; nil:
// nothing.
func (s *Submission) Check() error {
	if s.Definition == nil {
		return fmt.Errorf("pipeline: submit: a definition is missing: %w", fs.ErrInvalid)
	}
	d := s.Definition
	if err := errors.Join(d.Check(), pipeline.CheckID(cmp.Or(s.ID, "1"))); err != nil {
		return err
	}
	for name, value := range s.Params {
		if !utf8.ValidString(name) || !utf8.ValidString(value) || strings.ContainsRune(name+value, 0) {
			return fmt.Errorf("pipeline %q: the parameter %q: its name or value %q is not UTF-8, or has a NUL: %w", d.Name, name, value, fs.ErrInvalid)
		}
	}
	b, err := encode(&plan{d, s.Params})
	if err == nil && len(b) > MaxDefinition {
		err = fmt.Errorf("pipeline %q: the definition has %d bytes with its parameters; at most %d are kept: %w", d.Name, len(b), MaxDefinition, fs.ErrInvalid)
	}
	return err
}

// canRun refuses commands where there is no Runner for them.
func (p *Pipelines) canRun(d *pipeline.Definition) error {
	for i := range d.Phases {
		if ph := &d.Phases[i]; len(ph.Run) > 0 && p.runner == nil {
			return fmt.Errorf("pipeline %q: phase %q: it runs a command, and there is no Runner: %w", d.Name, ph.Name, errors.ErrUnsupported)
		}
	}
	return nil
}

func (p *Pipelines) checkPhase(ph *pipeline.Phase) error {
	if _, err := gather.ParsePatterns(ph.WakeOn); err != nil {
		return err
	}
	for _, c := range []*guard.Condition{ph.When, ph.Until} {
		if c == nil {
			continue
		}
		if err := p.gatherer.Check(c); err != nil {
			return err
		}
	}
	if err := p.checkHolds(ph.Holds); err != nil {
		return fmt.Errorf("holds: %w", err)
	}
	return p.checkLimits(ph.Limits)
}

// checkHolds refuses what the backend could never hold together. A call that has ended before
// it asks anything says that: names that are too long for it, or that it takes for one.
func (p *Pipelines) checkHolds(holds []pipeline.Want) error {
	if len(holds) == 0 {
		return nil
	}
	ended, end := context.WithCancel(context.Background())
	end()
	_, err := p.space.TryAcquireAll(ended, wantsOf(p.space, holds)...)
	if errors.Is(err, fs.ErrInvalid) || errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return nil
}

// checkLimits refuses limiters that the backend could never have.
func (p *Pipelines) checkLimits(limits []pipeline.Limit) error {
	ended, end := context.WithCancel(context.Background())
	end()
	for _, l := range limits {
		_, err := p.space.Limiter(l.Limiter, limit.Rate{}).Reserve(ended, l.Key, l.Cost)
		if errors.Is(err, fs.ErrInvalid) || errors.Is(err, errors.ErrUnsupported) {
			return fmt.Errorf("limits: %w", err)
		}
	}
	return nil
}
