package session_test

import (
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/internal/session"
)

var ttls = []time.Duration{time.Second, 3 * time.Second, 30 * time.Second, 24 * time.Hour}

// "Keepalive at TTL/3 ± 10 %".
func TestBeatPeriod(t *testing.T) {
	for _, ttl := range ttls {
		low, high := int64(ttl), int64(0)
		for seed := range uint64(200) {
			r := opened(t, session.Config{TTL: ttl, Seed: seed})
			low, high = min(low, r.s.Wake()), max(high, r.s.Wake())
		}
		third := int64(ttl) / 3
		if low < third*9/10 || high > third*11/10 || high-low < third/10 {
			t.Errorf("TTL %s: beats after %s to %s", ttl, time.Duration(low), time.Duration(high))
		}
	}
}

// deaf runs a session against a server that answers keepalives at once, except
// those for which lose says so, until the end or the session's.
func deaf(r *rig, end int64, lose func(nth int, at int64) bool) {
	beats := 0
	for r.now = r.s.Wake(); r.now < end && r.s.Alive(); r.now = max(r.s.Wake(), r.now+1) {
		for _, m := range r.flush() {
			if m.Kind != session.KindRenewal {
				continue
			}
			beats++
			if !lose(beats, r.now) {
				r.renewed(m.Attempt, r.now, r.now+int64(r.ttl))
			}
		}
	}
}

// "Two lost beats never lose a hold."
func TestTwoLostBeatsLoseNothing(t *testing.T) {
	for _, ttl := range ttls {
		for seed := range uint64(100) {
			r := opened(t, session.Config{TTL: ttl, Seed: seed})
			deaf(r, 3*int64(ttl), func(nth int, _ int64) bool { return nth%3 != 0 })
			if !r.s.Alive() {
				t.Fatalf("TTL %s, seed %d: lost at %s", ttl, seed, time.Duration(r.now))
			}
		}
	}
}

// The same for two beats with all their retries: nothing is answered for three
// quarters of the TTL.
func TestTwoLostPeriodsLoseNothing(t *testing.T) {
	for _, ttl := range ttls {
		for seed := range uint64(100) {
			r := opened(t, session.Config{TTL: ttl, Seed: seed})
			deaf(r, 2*int64(ttl), func(_ int, at int64) bool { return at < int64(ttl)*3/4 })
			if !r.s.Alive() {
				t.Fatalf("TTL %s, seed %d: lost at %s", ttl, seed, time.Duration(r.now))
			}
		}
	}
}

// "One unanswered for TTL/12 counts as missed and is retried with backoff over
// all endpoints until D": a silent stream is given up for others, each with more
// patience than the one before, and tries go on.
func TestMissedBeatsAreRetriedUntilTheDeadline(t *testing.T) {
	for _, ttl := range ttls {
		r := opened(t, session.Config{TTL: ttl, Seed: 1})
		last, tries := int64(0), 0
		deaf(r, 2*int64(ttl), func(_ int, at int64) bool { tries++; last = at; return true })
		if len(r.dead) != 1 || r.now < r.deadline() {
			t.Fatalf("TTL %s: dead %v at %s, deadline %s", ttl, r.dead, time.Duration(r.now), time.Duration(r.deadline()))
		}
		if gap := r.deadline() - last; tries < 4 || gap > int64(ttl)/6 {
			t.Errorf("TTL %s: %d tries, the last %s before the deadline", ttl, tries, time.Duration(gap))
		}
		if r.redials < 3 {
			t.Errorf("TTL %s: %d tries, other streams asked for %d times", ttl, tries, r.redials)
		}
	}
}

// A stream whose answers take longer than the patience, but no longer than they
// did, is kept: that nothing was said while nothing was asked is no silence.
func TestIdleIsNotSilent(t *testing.T) {
	r := opened(t, session.Config{TTL: 12 * time.Second})
	first := 0
	for beat := range 5 {
		r.now = r.s.Wake()
		m := renewal(t, r)
		for answer := r.now + sec(1.5); r.now < answer; r.now = min(answer, max(r.now+ms, r.s.Wake())) {
			r.flush()
		}
		r.renewed(m.Attempt, r.now, r.now+sec(12))
		if beat == 0 {
			first = r.redials // so far the link was a fast one
		}
	}
	if r.redials > first {
		t.Errorf("another stream was asked for %d times while all answers took the same", r.redials-first)
	}
}

// A stream that breaks with a beat under way costs no time: the beat goes out
// on the next stream at once.
func TestBeatFollowsTheStream(t *testing.T) {
	r := opened(t, session.Config{})
	renewal(t, r.at(11))
	r.at(11.1)
	for _, m := range r.reconnect() {
		if m.Kind == session.KindRenewal {
			return
		}
	}
	t.Fatal("no keepalive on the new stream")
}

// Without a stream a session only waits for its deadline.
func TestNoStreamNoBeat(t *testing.T) {
	r := opened(t, session.Config{})
	r.take(r.s.Disconnect(r.now))
	if r.s.Wake() != r.deadline() {
		t.Fatalf("wake %d, want the deadline %d", r.s.Wake(), r.deadline())
	}
	r.now = r.deadline() - 1
	if r.take(r.s.Tick(r.now)); len(r.dead) != 0 {
		t.Fatal("dead before its deadline")
	}
	r.now++
	if r.take(r.s.Tick(r.now)); len(r.dead) != 1 {
		t.Fatal("alive at its deadline")
	}
}
