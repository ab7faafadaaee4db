package cli

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/pipeline"
	"github.com/holdfast-io/holdfast/pipeline/run"
)

// statusJSON is a run for programs, as holdfast pipeline status tells it; a node is nodeJSON.
type statusJSON struct {
	Run      string          `json:"run"`
	Status   pipeline.Status `json:"status"`
	Phase    string          `json:"phase,omitempty"`
	Attempt  int             `json:"attempt,omitempty"`
	Failed   []string        `json:"failed,omitempty"`
	Phases   []phaseJSON     `json:"phases,omitempty"`
	Since    time.Time       `json:"since"`
	Reason   string          `json:"reason,omitempty"`
	ExitCode int             `json:"exit_code,omitempty"`
	Output   string          `json:"output,omitempty"`
	Runner   string          `json:"runner,omitempty"`
	Place    int             `json:"place,omitempty"`
	Events   int             `json:"events,omitempty"`
	Why      []string        `json:"why,omitempty"`
	Guard    any             `json:"guard,omitempty"`
}

// phaseJSON is a phase of a run for programs.
type phaseJSON struct {
	Name   string          `json:"name"`
	Status pipeline.Status `json:"status"`
}

// notEntered is the status of a phase that the run has not come to, or has passed over.
const notEntered pipeline.Status = "not_entered"

// phaseStatus is where a phase stands, by the path of its run: that of the run, if it is in it.
func phaseStatus(phase string, path []string, s *pipeline.State) pipeline.Status {
	switch {
	case !slices.Contains(path, phase):
		return notEntered
	case slices.Contains(s.Failed, phase):
		return pipeline.Failed
	case phase != s.Phase || s.Status == pipeline.Failed: // of a phase for failures that has ended well
		return pipeline.Done
	}
	return s.Status
}

// phasesOf are the phases with their status; a report from a list has none.
func phasesOf(r *run.Report) (all []phaseJSON) {
	if r.Definition == nil {
		return nil
	}
	path := r.Definition.Path(&r.State)
	for i := range r.Definition.Phases {
		name := r.Definition.Phases[i].Name
		all = append(all, phaseJSON{name, phaseStatus(name, path, &r.State)})
	}
	return all
}

func reportJSON(r *run.Report) *statusJSON {
	s := &r.State
	return &statusJSON{
		Run: r.Ref.String(), Status: s.Status, Phase: s.Phase, Attempt: s.Attempt, Failed: s.Failed, Phases: phasesOf(r), Since: s.Since.UTC(), Reason: s.Reason,
		ExitCode: s.Code, Output: s.Tail, Runner: r.Runner, Place: r.Place, Events: r.Events,
	}
}

// phaseOf is the phase that a run is in; before the first it is empty.
func phaseOf(r *run.Report) *pipeline.Phase {
	for i := range r.Definition.Phases {
		if r.Definition.Phases[i].Name == r.State.Phase {
			return &r.Definition.Phases[i]
		}
	}
	return &pipeline.Phase{}
}

// reportTree is a line for the run and one for each phase, with a mark: ✓ it is done, ✗ it
// has failed, … it waits or runs, · it was not entered. now is what is so, if it was asked.
func reportTree(r *run.Report, now *nowIs) string {
	var b strings.Builder
	s := &r.State
	fmt.Fprintf(&b, "%s: %s", r.Ref, s.Status)
	if s.Phase == "" && (now == nil || s.Status != pipeline.Queued) { // else it is among the reasons
		lines(&b, "  ", s.Reason)
	}
	for i, ph := range phasesOf(r) {
		if ph.Status == notEntered && r.Definition.Phases[i].Recovery {
			continue // a phase for failures is shown only if one led to it
		}
		fmt.Fprintf(&b, "\n  %s %s", markOf(ph.Status), ph.Name)
		if ph.Name == s.Phase {
			currentPhase(&b, s, now)
		}
	}
	if now != nil {
		for _, reason := range now.reasons {
			lines(&b, "  ", reason)
		}
	}
	return b.String()
}

// markOf is that of a phase.
func markOf(s pipeline.Status) string {
	switch s {
	case notEntered:
		return "·"
	case pipeline.Done:
		return "✓"
	case pipeline.Failed, pipeline.Cancelled:
		return "✗"
	}
	return "…"
}

// currentPhase tells more of the phase that the run is in.
func currentPhase(b *strings.Builder, s *pipeline.State, now *nowIs) {
	if s.Attempt > 1 {
		fmt.Fprintf(b, " (attempt %d)", s.Attempt)
	}
	if !s.Status.Ended() {
		fmt.Fprintf(b, ": %s", s.Status)
	}
	if now != nil && now.condition != nil {
		b.WriteString(strings.ReplaceAll(guardTree(now.condition, now.result), "\n", "\n    "))
		return
	}
	lines(b, "      ", s.Reason)
}

// lines writes a text of several lines, each with an indent.
func lines(b *strings.Builder, indent, text string) {
	for line := range strings.Lines(text) {
		b.WriteString("\n" + indent + strings.TrimSuffix(line, "\n"))
	}
}

// liveTree shows where a run stands each time that it changes: on a terminal in place of
// what it showed before.
type liveTree struct {
	*screen
	json bool
	mu   sync.Mutex
	rep  run.Report
	last string
	// theirs: another program has submitted the run, and here: it has run in this one.
	theirs, here bool

	since *time.Timer // ends the wait; nil: it has no end
	wait  time.Duration
	due   time.Time      // when the wait is over; zero: nothing is waited for
	at    pipeline.State // where the run stood when the wait began
}

func (t *liveTree) begin(rep *run.Report) {
	go t.write()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rep = *rep
	t.rep.Events = 0 // a state does not say how many there were by then
	t.draw()
}

// told draws a state.
func (t *liveTree) told(_ run.Ref, s pipeline.State) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.here = true
	if t.rep.State = s; t.rep.Definition != nil {
		t.draw()
	}
	t.count(&s)
}

// standsBy reports that this program only waits for a run of another.
func (t *liveTree) standsBy() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.theirs && !t.here
}

func (t *liveTree) draw() {
	text := reportTree(&t.rep, nil)
	if text == t.last || !t.terminal && t.passes() {
		return
	}
	if t.last = text; !t.json {
		t.show([]byte(text+"\n"), isTree)
		return
	}
	var b bytes.Buffer
	_ = encode(&b, reportJSON(&t.rep))
	t.show(b.Bytes(), isTree)
}

// note tells something beside the tree.
func (t *liveTree) note(text string) {
	var b bytes.Buffer
	(&printer{err: &b, json: t.json}).note(text)
	t.show(b.Bytes(), isNote)
}

// stalled tells why a run does not go on.
func (t *liveTree) stalled(r run.Ref, err error) {
	t.note(fmt.Sprintf("%s does not go on: %v; it is tried again", r, err))
}

// passes reports that the run goes on at once, or has ended, which is told apart: where
// nobody looks, such states are not shown.
func (t *liveTree) passes() bool {
	switch s := &t.rep.State; s.Status {
	case pipeline.Running, pipeline.Unknown, pipeline.Pausing, pipeline.Stopping:
		return false
	default:
		return s.Status.Ended() || s.Reason == ""
	}
}

// bound calls stop when one attempt of the run has had one status so long, unless its command
// runs.
func (t *liveTree) bound(wait time.Duration, stop context.CancelCauseFunc) {
	if wait > 0 {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.wait, t.due = wait, time.Now().Add(wait)
		t.since = time.AfterFunc(wait, func() { t.tooLong(stop) })
	}
}

// tooLong stops the run, unless it went on in the moment in which the timer did: a command that
// has begun is not ended for it.
func (t *liveTree) tooLong(stop context.CancelCauseFunc) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.due.IsZero() && !time.Now().Before(t.due) {
		stop(errBlocked)
	}
}

func (t *liveTree) count(s *pipeline.State) {
	switch {
	case t.since == nil || s.Status == t.at.Status && s.Phase == t.at.Phase && s.Attempt == t.at.Attempt:
	case s.Status == pipeline.Running || s.Status == pipeline.Stopping || s.Status.Ended():
		t.since.Stop()
		t.due = time.Time{}
	default:
		t.due = time.Now().Add(t.wait) // before the timer's, which does not look again
		t.since.Reset(t.wait)
	}
	t.at = *s
}

// stop ends the bound.
func (t *liveTree) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.since != nil {
		t.since.Stop()
	}
}
