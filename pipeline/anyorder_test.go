package pipeline_test

import (
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/pipeline"
)

var kinds = []pipeline.EventKind{
	pipeline.Submitted, pipeline.Admitted, pipeline.Checked, pipeline.Acquired, pipeline.Launched, pipeline.Exited,
	pipeline.NotStarted, pipeline.Refused, pipeline.Lost, pipeline.Ticked, pipeline.TakenOver, pipeline.Answered, pipeline.Cancel, "no such event",
}

// Whatever happens in whatever order, a command starts only with its holds and while no
// other runs, each phase no more often than it may, and nothing is held after the end; the
// same events give the same state.
func TestStep_AnyOrder(t *testing.T) {
	ended := map[pipeline.Status]int{}
	for seed := range uint64(5000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		p := newPlayer(t, anyPhases(rng)...)
		again := map[string]int{}
		for range 60 {
			e := p.anyEvent(rng)
			if p.play(e) && e.Answer == pipeline.Again {
				again[e.Phase]++
			}
		}
		for name, n := range p.starts {
			if most := 1 + p.d.Phases[p.index(name)].Retries + again[name]; n > most {
				t.Fatalf("seed %d: %s was started %d times of %d", seed, name, n, most)
			}
		}
		var s pipeline.State
		for _, e := range p.log {
			s, _, _ = p.d.Step(s, e)
		}
		if !reflect.DeepEqual(s, p.s) {
			t.Fatalf("seed %d: the same events give %+v and %+v", seed, p.s, s)
		}
		ended[p.s.Status]++
	}
	for _, s := range []pipeline.Status{pipeline.Done, pipeline.Failed, pipeline.Cancelled, pipeline.Unknown, pipeline.Pausing, pipeline.Stopping} {
		if ended[s] == 0 {
			t.Errorf("no run of 5000 is %s at last: %v", s, ended)
		}
	}
}

func anyPhases(rng *rand.Rand) (out []pipeline.Phase) {
	n := 1 + rng.IntN(4)
	for i := range n {
		ph := pipeline.NewPhase(string(rune('a' + i)))
		if rng.IntN(5) > 0 {
			ph.Run = []string{"run"}
		}
		if rng.IntN(3) == 0 {
			ph = ph.WithPre(guard.LockFree("x"))
		}
		if rng.IntN(2) == 0 {
			ph = ph.WithHolds(prod)
		}
		if rng.IntN(3) == 0 {
			ph = ph.WithPost(guard.LockFree("x"), time.Duration(rng.IntN(2))*time.Minute)
		}
		ph.Wait = time.Duration(rng.IntN(2)) * time.Minute
		ph.Retries, ph.Pause = rng.IntN(3), time.Duration(rng.IntN(2))*time.Minute
		if ph.Retries == 0 {
			ph.Pause = 0
		}
		ph.Recovery = i > 0 && rng.IntN(4) == 0
		if i+1 < n && rng.IntN(3) == 0 {
			ph.OnFailure = string(rune('a' + i + 1))
		}
		out = append(out, ph)
	}
	return out
}

// anyEvent is mostly one that fits somewhere, sometimes of another attempt.
func (p *player) anyEvent(rng *rand.Rand) pipeline.Event {
	p.now = p.now.Add(time.Duration(rng.IntN(50)-5) * time.Second)
	e := p.of(kinds[rng.IntN(len(kinds))])
	if e.Kind == pipeline.Cancel && rng.IntN(4) > 0 {
		e.Kind = pipeline.Checked
	}
	if rng.IntN(10) == 0 {
		e.Attempt--
	}
	e.Outcome = guard.Outcome(rng.IntN(4))
	e.Code = rng.IntN(2)
	e.Answer = []pipeline.Answer{pipeline.Succeeded, pipeline.DidFail, pipeline.Again, "x"}[rng.IntN(4)]
	if e.Kind != pipeline.Answered {
		e.Answer = ""
	}
	switch e.Kind {
	case pipeline.Acquired:
		p.tokens++
		e.Token = p.tokens
	case pipeline.Lost:
		e.Token = p.held
	}
	return e
}
