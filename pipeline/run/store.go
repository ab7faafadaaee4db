package run

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"unicode"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/guard/gather"
	"github.com/holdfast-io/holdfast/pipeline"
)

// prefix is where everything of pipelines is, keys and elections.
const prefix = "holdfast/pipelines/"

func (r Ref) election() string   { return prefix + r.String() }
func (r Ref) head() string       { return prefix + r.Pipeline + "/run/" + r.ID }
func (r Ref) definition() string { return prefix + r.Pipeline + "/definition/" + r.ID }
func (r Ref) log() string        { return prefix + r.Pipeline + "/log/" + r.ID + "/" }
func (r Ref) event(seq int) string {
	return fmt.Sprintf("%s%09d", r.log(), seq)
}

// record is what the head of a run says: the state after its last event.
type record struct {
	State pipeline.State `json:"state"`
	// Seq is the number of its last event, from 1.
	Seq int `json:"seq"`
	// By tells writes apart: a writer that has heard no answer finds its own.
	By string `json:"by"`
	// Token is that of the runner that has the run.
	Token uint64 `json:"token,omitempty"`
}

// plan is what a run does, as it was submitted.
type plan struct {
	Definition *pipeline.Definition `json:"definition"`
	Params     map[string]string    `json:"params,omitempty"`
}

// view is a run as it was last read.
type view struct {
	Ref
	plan
	record
	rev     holdfast.Revision
	effects []pipeline.Effect // of the event by which it was taken over
}

// errChanged: another has written an event meanwhile.
var errChanged = errors.New("the run has changed meanwhile")

// load reads a run with its definition.
func (p *Pipelines) load(ctx context.Context, r Ref) (*view, error) {
	v, _, err := p.loadWith(ctx, r)
	return v, err
}

// loadWith reads it at the same revision as other keys, of which it answers with what each has.
func (p *Pipelines) loadWith(ctx context.Context, r Ref, also ...holdfast.Op) (*view, []holdfast.OpResult, error) {
	if err := r.check(); err != nil {
		return nil, nil, err
	}
	ops := append([]holdfast.Op{holdfast.GetOp(r.head()), holdfast.GetOp(r.definition())}, also...)
	res, err := p.txn(ctx, holdfast.Txn{Then: ops})
	if err != nil {
		return nil, nil, fmt.Errorf("pipeline: read %s: %w", r, err)
	}
	v, err := r.viewOf(res.Results)
	return v, res.Results[2:], err
}

// viewOf is the run by its head and its definition.
func (r Ref) viewOf(results []holdfast.OpResult) (*view, error) {
	v := &view{Ref: r}
	if len(results[0].Entries) == 0 || len(results[1].Entries) == 0 {
		return nil, fmt.Errorf("pipeline: there is no run %s: %w", r, fs.ErrNotExist)
	}
	head := &results[0].Entries[0]
	v.rev = head.Modified
	if err := errors.Join(json.Unmarshal(head.Value, &v.record), json.Unmarshal(results[1].Entries[0].Value, &v.plan)); err != nil || v.Definition == nil {
		return nil, r.damaged(cmp.Or(err, errors.New("it has no definition")))
	}
	return v, nil
}

// errDamaged has no kind: no argument of a call is wrong.
var errDamaged = errors.New("are not those of a run")

// damaged tells of keys that another program has changed.
func (r Ref) damaged(err error) error {
	return fmt.Errorf("pipeline: the keys of %s %w: %w; delete %s, %s and what is below %s to be rid of it", r, errDamaged, err, r.head(), r.definition(), r.log())
}

// txn is one transaction with a bound on its time.
func (p *Pipelines) txn(ctx context.Context, t holdfast.Txn) (holdfast.TxnResult, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return p.space.KV().Txn(ctx, t)
}

// put keeps the event on top of v, and v becomes the run after it. It answers with what the
// runner has to do. Its time is that of the clock, or e.At if that is later. An event that does not fit is refused, and errChanged means that v is
// not the last view of the run any more.
func (p *Pipelines) put(ctx context.Context, v *view, e pipeline.Event, by func(*record)) ([]pipeline.Effect, error) {
	e.At, e.Reason, e.Tail = later(e.At, p.now()), clip(e.Reason), clean(e.Tail)
	next, effects, err := v.Definition.Step(v.State, e)
	if err != nil {
		return nil, err
	}
	rec := v.record
	rec.State, rec.By = next, rand.Text()
	rec.Seq++
	if by != nil {
		by(&rec)
	}
	t := holdfast.Txn{If: []holdfast.Compare{holdfast.ModifiedAt(v.head(), v.rev)}}
	t.Then = append(t.Then, p.tellings(v, &e, &rec, effects)...)
	if err := addPut(&t, v.head(), &rec); err != nil {
		return nil, err
	}
	e.Tail = strings.ToValidUTF8(e.Tail[max(0, len(e.Tail)-MaxReason):], "") // the state has all of it
	if err := addPut(&t, v.event(rec.Seq), &e); err != nil {
		return nil, err
	}
	if old := rec.Seq - MaxEvents; old > 0 {
		t.Then = append(t.Then, holdfast.DeleteOp(v.event(old)))
	}
	rev, err := p.commit(ctx, v, &rec, &e, t)
	if err != nil {
		return nil, err
	}
	v.record, v.rev = rec, rev
	return effects, nil
}

// commit writes; an event that is about the queue changes that in the same step.
func (p *Pipelines) commit(ctx context.Context, v *view, rec *record, e *pipeline.Event, t holdfast.Txn) (holdfast.Revision, error) {
	queued := e.Kind == pipeline.Admitted || rec.State.Status.Ended()
	if queued {
		leave, err := p.turn(ctx, v.Pipeline)
		if err != nil {
			return 0, fmt.Errorf("pipeline: write %s: %w", v.Ref, err)
		}
		defer leave()
	}
	for try := 0; ; try++ {
		with := t
		if queued {
			extra, err := p.queueAfter(ctx, v, e, rec)
			if err != nil {
				return 0, err
			}
			with.If, with.Then = append(extra.If, t.If...), append(extra.Then, t.Then...)
		}
		res, failed := p.txn(ctx, with)
		if failed == nil && res.OK {
			return res.Revision, nil
		}
		if failed != nil && !passing(failed) {
			return 0, fmt.Errorf("pipeline: write %s: %w", v.Ref, failed)
		}
		rev, err := p.written(ctx, v, rec.By)
		if err != nil || rev > 0 {
			return rev, err
		}
		if !pause(ctx, try) {
			return 0, fmt.Errorf("pipeline: write %s: %w", v.Ref, cmp.Or(failed, context.Cause(ctx)))
		}
	}
}

// written finds out what became of a write: its revision, 0 if it was not done, or
// errChanged.
func (p *Pipelines) written(ctx context.Context, v *view, by string) (holdfast.Revision, error) {
	for try := 0; ; try++ {
		now, err := p.load(ctx, v.Ref)
		switch {
		case err == nil && now.By == by:
			return now.rev, nil
		case err == nil && now.rev == v.rev:
			return 0, nil
		case err == nil || errors.Is(err, fs.ErrNotExist):
			return 0, errChanged
		case !passing(err) || !pause(ctx, try):
			return 0, err
		}
	}
}

func addPut(t *holdfast.Txn, key string, value any) error {
	b, err := encode(value)
	t.Then = append(t.Then, holdfast.PutOp(key, b))
	return err
}

// encode is JSON without the escapes that only HTML needs.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSpace(b.Bytes()), err
}

// telling is an event for others, with the fields that guards' events have.
type telling struct {
	GuardID   string     `json:"guard_id,omitempty"`
	Pipeline  string     `json:"pipeline_id"`
	Phase     string     `json:"phase,omitempty"`
	Attempt   int        `json:"attempt,omitempty"`
	Reason    string     `json:"reason,omitempty"`
	WaitingOn []string   `json:"waiting_on,omitempty"`
	Condition guard.Kind `json:"condition,omitempty"`
	WakeOn    []string   `json:"wake_on,omitempty"`
}

// tellings are the events of a step as keys: one for each verb of a run, so that they are
// bounded.
func (p *Pipelines) tellings(v *view, e *pipeline.Event, rec *record, effects []pipeline.Effect) (ops []holdfast.Op) {
	put := func(kind, verb, name string, x telling) {
		x.Pipeline = v.Ref.String()
		if b, err := encode(x); err == nil {
			ops = append(ops, holdfast.PutOp(gather.EventPrefix+kind+"/"+verb+"/"+name, b))
		}
	}
	if c := conditionOf(v, e); c != nil {
		verb := "failed"
		if e.Outcome == guard.Passed {
			verb = "passed"
		}
		name := v.Ref.String() + "/" + e.Phase
		put("guard", verb, name, telling{GuardID: name, Reason: e.Reason, Condition: c.Kind})
	}
	for _, f := range effects {
		ph := phaseOf(v.Definition, f.Phase)
		x := telling{Phase: f.Phase, Attempt: f.Attempt, WakeOn: few(ph.WakeOn)}
		switch f.Kind {
		case pipeline.Check:
			name := v.Ref.String() + "/" + f.Phase
			x.GuardID, x.Condition = name, f.Condition.Kind
			put("guard", "evaluating", name, x)
		case pipeline.Tell:
			x.Reason = clip(f.Reason)
			if f.Verb == "waiting" {
				x.WaitingOn = []string{x.Reason}
			}
			put("pipeline", f.Verb, v.Ref.String(), x)
		}
	}
	return ops
}

// few are the first of the patterns, so many that they are no longer than a reason together: a definition
// has a bound of its own, and each telling would be as long.
func few(patterns []string) []string {
	length := 0
	for i, p := range patterns {
		if length += len(p); length > MaxReason {
			return patterns[:i]
		}
	}
	return patterns
}

// conditionOf is the one that an event was the result of, or nil.
func conditionOf(v *view, e *pipeline.Event) *guard.Condition {
	if e.Kind != pipeline.Checked {
		return nil
	}
	switch v.State.Status {
	case pipeline.Blocked:
		return phaseOf(v.Definition, e.Phase).When
	case pipeline.Verifying:
		return phaseOf(v.Definition, e.Phase).Until
	}
	return nil
}

func phaseOf(d *pipeline.Definition, name string) *pipeline.Phase {
	for i := range d.Phases {
		if d.Phases[i].Name == name {
			return &d.Phases[i]
		}
	}
	return &pipeline.Phase{}
}

// verbs are those of the keys that tell of a run.
var verbs = []string{"queued", "acquiring", "launching", "running", "pausing", "unknown", "stopping", "done", "failed", "cancelled", "waiting", "resumed", "lost"}

// forget deletes everything of a run.
func forget(v Ref) (ops []holdfast.Op) {
	ops = append(ops, holdfast.DeleteOp(v.head()), holdfast.DeleteOp(v.definition()), holdfast.DeleteRangeOp(v.log()))
	for _, verb := range verbs {
		ops = append(ops, holdfast.DeleteOp(gather.EventPrefix+"pipeline/"+verb+"/"+v.String()))
	}
	for _, verb := range []string{"evaluating", "passed", "failed"} {
		ops = append(ops, holdfast.DeleteRangeOp(gather.EventPrefix+"guard/"+verb+"/"+v.String()+"/"))
	}
	return ops
}

// clip cuts a text to what is kept of a reason.
func clip(s string) string {
	const more = "…"
	if s = clean(s); len(s) > MaxReason {
		s = strings.ToValidUTF8(s[:MaxReason-len(more)], "") + more
	}
	return s
}

// clean is a text without control characters but ends of lines and tabs, and with U+FFFD for what is
// not UTF-8: as JSON it has at most twice its length.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
}
