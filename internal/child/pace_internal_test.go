package child

import (
	"testing"
	"time"
)

// look is one step of a story: what is seen, and what has to come of it.
type lookStep struct {
	at    time.Duration // since the beginning
	state state
	want  action
}

func TestPace(t *testing.T) {
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	held := func(left time.Duration) state { return state{bounded: true, left: left} }
	lost := func(left time.Duration) state { return state{over: true, bounded: true, left: left} }
	tests := []struct {
		name    string
		grace   time.Duration
		left    time.Duration
		bounded bool
		steps   []lookStep
	}{
		{"renewed in time, nobody is ended", 5 * time.Second, 30 * time.Second, true, []lookStep{
			{0, held(30 * time.Second), leave}, {20 * time.Second, held(10 * time.Second), leave}, {21 * time.Second, held(29 * time.Second), leave}}},
		{"not renewed: told with the grace left, killed before the deadline", 5 * time.Second, 30 * time.Second, true, []lookStep{
			{24900 * time.Millisecond, held(5100 * time.Millisecond), leave}, {25 * time.Second, held(5 * time.Second), terminate},
			{29 * time.Second, held(time.Second), leave}, {29750 * time.Millisecond, held(250 * time.Millisecond), kill}}},
		{"a short life gives a short grace", 5 * time.Second, time.Second, true, []lookStep{
			{ms(740), held(ms(260)), leave}, {ms(750), held(ms(250)), terminate}, {ms(938), held(ms(62)), kill}}},
		{"no grace: killed before the deadline", 0, time.Second, true, []lookStep{
			{ms(930), held(ms(70)), leave}, {ms(938), held(ms(62)), kill}}},
		{"a tiny grace: told and killed before the deadline", ms(10), time.Second, true, []lookStep{
			{ms(927), held(ms(73)), leave}, {ms(928), held(ms(72)), terminate}, {ms(938), held(ms(62)), kill}}},
		{"a grace that the margin would use up", ms(70), time.Second, true, []lookStep{
			{ms(874), held(ms(126)), leave}, {ms(875), held(ms(125)), terminate}, {ms(938), held(ms(62)), kill}}},
		{"lost with time left: grace, then killed", 5 * time.Second, 30 * time.Second, true, []lookStep{
			{0, lost(20 * time.Second), terminate}, {4900 * time.Millisecond, lost(15 * time.Second), leave}, {5 * time.Second, lost(15 * time.Second), kill}}},
		{"lost near the deadline: killed before it", 5 * time.Second, 30 * time.Second, true, []lookStep{
			{0, lost(2 * time.Second), terminate}, {1750 * time.Millisecond, lost(250 * time.Millisecond), kill}}},
		{"lost after the deadline: killed at once", 5 * time.Second, 30 * time.Second, true, []lookStep{{0, lost(-time.Second), kill}}},
		{"lost without a deadline: killed at once", 5 * time.Second, 0, false, []lookStep{{0, state{over: true}, kill}}},
		{"no deadline and not lost", 5 * time.Second, 0, false, []lookStep{{0, state{}, leave}, {time.Hour, state{}, leave}}},
		{"a renewal after the word to end comes too late", 5 * time.Second, 30 * time.Second, true, []lookStep{
			{0, held(5 * time.Second), terminate}, {ms(10), held(30 * time.Second), leave}, {5 * time.Second, held(29 * time.Second), kill}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := newPace(tt.grace, tt.left, tt.bounded)
			start := time.Unix(0, 0)
			for _, s := range tt.steps {
				got, again := p.look(start.Add(s.at), s.state)
				if got != s.want || again <= 0 {
					t.Errorf("at %s with %+v: %d, again in %s; want %d", s.at, s.state, got, again, s.want)
				}
			}
		})
	}
}

// Whoever looks when it is told to looks always before the command has to be
// told to end, as long as the hold is renewed.
func TestPace_LooksBeforeItIsTooLate(t *testing.T) {
	for _, ttl := range []time.Duration{time.Second, 5 * time.Second, 30 * time.Second, time.Hour} {
		for _, grace := range []time.Duration{0, 50 * time.Millisecond, 5 * time.Second} {
			p := newPace(grace, ttl, true)
			for left := ttl; left > p.notice()+10*time.Millisecond; {
				do, again := p.look(time.Unix(0, 0), state{bounded: true, left: left})
				if do != leave || left-again < p.notice() {
					t.Fatalf("TTL %s, grace %s, left %s: %d, again in %s, which is after the time of the SIGTERM", ttl, grace, left, do, again)
				}
				left -= again
			}
		}
	}
}

func TestPace_Hurry(t *testing.T) {
	p := newPace(2*time.Second, 0, false)
	start := time.Unix(0, 0)
	p.hurry(start)
	if do, again := p.look(start.Add(time.Second), state{}); do != leave || again != time.Second {
		t.Errorf("a second before the end: %d, again in %s", do, again)
	}
	if do, _ := p.look(start.Add(2*time.Second), state{}); do != kill {
		t.Errorf("after the grace: %d, want kill", do)
	}
}

func FuzzParseOrder(f *testing.F) {
	for _, seed := range []string{"mark ABC", "mark ", "group 4711", "holder 4711", "holder 1", "until 5000000000", "until -1", "end", "group 1", "group -1", "group 0", "until", "", "group 99999999999"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		o, err := parseOrder(line)
		if err != nil {
			return
		}
		if o.word == "group" && o.process < 2 {
			t.Errorf("%q would kill everything", line)
		}
		again, err := parseOrder(o.String())
		if err != nil || again != o {
			t.Errorf("%q is %+v, and written and read again %+v: %v", line, o, again, err)
		}
	})
}
