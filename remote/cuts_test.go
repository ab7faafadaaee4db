package remote_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/services"
)

var cuts = flag.Int("remote.cuts", 5, "how many links of holders TestCuts cuts, 50 at a time")

const (
	cutTTL    = 5 * time.Second
	cutAtOnce = 50
	// cutGoal is how long after a cut the next is to be granted, at most. A busy
	// machine may take longer: it is told, not demanded.
	cutGoal = cutTTL + 300*time.Millisecond
)

// cutWays are the ways in which links are cut, in turn.
var cutWays = []struct {
	name string
	cut  func(*services.Link)
}{
	{"into silence", func(l *services.Link) { l.Cut() }},
	{"by a reset, then silence", func(l *services.Link) { l.Cut(); l.Break() }},
}

// TestCuts cuts the links of holders at random moments, while others wait, and
// looks at each holder the moment the next one is granted: it has to know of its
// end by then, by Err and by Done, and still when the link is whole again.
func TestCuts(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 1, steady)
	next, err := holdfast.Open(t.Context(), g.url())
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	seen := make([]takeover, *cuts)
	n := services.Struck(t, len(seen), cutAtOnce, func(i int) bool {
		seen[i] = cutOne(t, services.Proxy(t, g.cfgs[0].Founders[0].Client), next, fmt.Sprint("m", i), cutWays[i%len(cutWays)].cut)
		return seen[i].struck()
	})
	if n > 0 {
		t.Logf("proof: remote: %d more holds were lost before their links could be cut, on a busy machine; they are not counted", n)
	}
	for i, way := range cutWays {
		var list []takeover
		for j := i; j < len(seen); j += len(cutWays) {
			list = append(list, seen[j])
		}
		report(t, way.name, list)
	}
}

// takeover is what was seen of one cut, by one clock.
type takeover struct {
	cut, known, granted time.Time
	believed            bool // by Err or by Done, when the next was granted
}

// struck: the hold lasted until its link was cut.
func (o takeover) struck() bool { return !o.cut.IsZero() && o.cut.Before(o.known) }

// cutOne has next wait for what another holds, and cuts the other's link. What a
// busy machine prevents leaves it without a cut.
func cutOne(t *testing.T, link *services.Link, next *holdfast.Space, name string, cut func(*services.Link)) (seen takeover) {
	s, err := holdfast.Open(t.Context(), "holdfast://"+link.Addr())
	if err != nil {
		t.Error(err)
		return seen
	}
	defer s.Close()
	defer link.Heal()
	m := s.Mutex(name, holdfast.TTL(cutTTL))
	hold, err := m.Acquire(t.Context())
	if err != nil {
		return seen.unless(t, err)
	}
	known, granted, waits := make(chan time.Time, 1), make(chan error, 1), make(chan struct{})
	done := hold.Done()
	go func() { <-done; known <- time.Now() }()
	var after *holdfast.Hold
	go func() {
		var err error
		after, err = next.Mutex(name, holdfast.OnWait(func(int) { close(waits) })).Acquire(t.Context())
		seen.granted = time.Now()
		select { // as it was given out: another would compare the clock
		case <-done:
			seen.believed = hold.Err() == nil
		default:
			seen.believed = true
		}
		granted <- err
	}()
	select {
	case <-waits:
		<-time.After(rand.N(cutTTL)) // a random moment between renewals
		seen.cut = time.Now()
		cut(link)
		err = <-granted
	case err = <-granted: // the hold was lost before
	}
	if err != nil {
		return seen.unless(t, err)
	}
	seen.known = <-known
	if seen.believed {
		t.Errorf("%s: the next was granted while the holder believed, %s before it knew", name, seen.known.Sub(seen.granted))
	}
	checkAfter(t, link, hold, m, after)
	return seen
}

// unless fails for any error but those of a busy machine: a session that was not
// renewed in time.
func (o takeover) unless(t *testing.T, err error) takeover {
	if !errors.Is(err, holdfast.ErrLost) {
		t.Error(err)
	}
	return takeover{}
}

// checkAfter heals the link: what was under way arrives late and changes nothing,
// and the name is the next one's as long as it believes.
func checkAfter(t *testing.T, link *services.Link, lost *holdfast.Hold, m *holdfast.Mutex, next *holdfast.Hold) {
	if next.Token() <= lost.Token() {
		t.Errorf("the token %d came after %d", next.Token(), lost.Token())
	}
	link.Heal()
	if err := lost.Release(); !errors.Is(err, holdfast.ErrLost) {
		t.Errorf("the release of a lost hold: %v", err)
	}
	if again, err := m.TryAcquire(t.Context()); err == nil {
		if next.Err() == nil {
			t.Error("two hold the name after the link was healed")
		}
		_ = again.Release()
	}
	_ = next.Release() // a busy machine may answer late; the server ends it in time
}

// report tells the figures.
func report(t *testing.T, way string, seen []takeover) {
	if len(seen) == 0 {
		return
	}
	var early, took []time.Duration
	overlaps, late := 0, 0
	for _, o := range seen {
		early, took = append(early, o.granted.Sub(o.known)), append(took, o.granted.Sub(o.cut))
		if o.believed {
			overlaps++
		}
		if o.granted.Sub(o.cut) > cutGoal {
			late++
		}
	}
	t.Logf("proof: remote: %d links cut %s, TTL %s: %d overlaps; the holder knew before the next grant by %s", len(seen), way, cutTTL, overlaps, spread(early))
	t.Logf("proof: remote: from the cut %s to the next grant %s; %d took longer than %s", way, spread(took), late, cutGoal)
}

// spread tells the least, the median, the 99th percentile and the most.
func spread(list []time.Duration) string {
	slices.Sort(list)
	rank := func(p int) time.Duration {
		return list[min(len(list)*p/100, len(list)-1)].Round(100 * time.Microsecond)
	}
	return fmt.Sprintf("least %s, median %s, 99 %% %s, most %s", rank(0), rank(50), rank(99), rank(100))
}
