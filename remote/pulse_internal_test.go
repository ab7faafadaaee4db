package remote

import (
	"context"
	"testing"
	"time"
)

const second = int64(time.Second)

// silent is a pulse that was asked at 10 s.
func silent() pulse {
	p := newPulse(second)
	p.sent(10 * second)
	return p
}

// A link is doubted when it has been silent for its patience after it was asked,
// however long it was idle before and however often it is asked meanwhile.
func TestPulse_Silence(t *testing.T) {
	p := newPulse(second)
	if wait, arm := p.sent(10 * second); !arm || wait != second {
		t.Errorf("the first look is after %d, %v", wait, arm)
	}
	if _, arm := p.sent(10*second + second/2); arm {
		t.Error("two watch the same link")
	}
	if wait := p.rang(10*second + second/4); wait != 3*second/4 {
		t.Errorf("it may be silent for another %d", wait)
	}
	if p.judge(11*second, true) != 0 || !p.doubted {
		t.Error("a silent link is not doubted")
	}
}

// What came meanwhile, and that nobody waits for an answer, speaks for the link.
func TestPulse_Life(t *testing.T) {
	p := silent()
	p.answered(10*second + second/2)
	if wait := p.rang(11 * second); wait != second/2 {
		t.Errorf("it was heard half a second ago and may be silent for another %d", wait)
	}
	p.sent(11 * second)
	if wait := p.judge(11*second, true); wait != second || p.doubted || !p.armed {
		t.Errorf("a link that was heard, and asked again, while its sessions were looked at is doubted: %t; looked at after %d: %t", p.doubted, wait, p.armed)
	}
	p = silent()
	if p.judge(11*second, false); p.doubted {
		t.Error("a link is doubted that nobody waits for")
	}
	if wait, arm := p.sent(13 * second); !arm || wait != 0 {
		t.Errorf("who is asked and silent since long is looked at after %d, %v", wait, arm)
	}
}

// Each doubt that was wrong makes the next one slower, up to a bound.
func TestPulse_Patience(t *testing.T) {
	p := newPulse(0)
	now, last := int64(0), int64(0)
	for range 10 {
		now += 100 * second
		wait, arm := p.sent(now)
		if !arm || wait < last || wait > int64(lastPatience) {
			t.Fatalf("the patience is %d after %d, %v", wait, last, arm)
		}
		now, last = now+wait, wait
		if p.judge(now, true) != 0 || !p.answered(now) {
			t.Fatal("there was no doubt")
		}
		if p.answered(now) {
			t.Fatal("one doubt is wrong twice")
		}
	}
	if last != int64(lastPatience) {
		t.Errorf("after ten doubts the patience is %d", last)
	}
}

// The first sign of life ends the search for another leader; a doubt that comes later
// than it begins none.
func TestPulse_Calm(t *testing.T) {
	l := &serverLink{pulse: silent()}
	l.pulse.judge(11*second, true)
	ctx, calm := context.WithCancel(t.Context())
	defer calm()
	if _, doubted := l.doubting(calm); !doubted || ctx.Err() != nil {
		t.Fatal("a silent link is not doubted")
	}
	l.alive(12 * second)
	if ctx.Err() == nil {
		t.Error("the others are asked although the link was heard")
	}
	if _, doubted := l.doubting(calm); doubted {
		t.Error("a link is doubted that was heard")
	}
}

// A session that cannot wait ends the search on the others, for one on all nodes,
// and teaches the link no patience: sessions that can wait are not to wait for longer.
func TestPulse_Suspicion(t *testing.T) {
	l := &serverLink{pulse: silent(), doubted: make(chan struct{}, 1)}
	l.pulse.doubted = true
	ctx, calm := context.WithCancel(t.Context())
	defer calm()
	if wide, doubted := l.doubting(calm); wide || !doubted {
		t.Fatal("all nodes are asked without a suspicion, or none")
	}
	l.suspect()
	if ctx.Err() == nil || len(l.doubted) != 1 {
		t.Error("only the others are asked after a suspicion")
	}
	if l.pulse.judge(11*second, false); !l.pulse.doubted {
		t.Error("a suspicion is over before the link was heard")
	}
	all, calm := context.WithCancel(t.Context())
	defer calm()
	if wide, doubted := l.doubting(calm); !wide || !doubted {
		t.Error("only the others are asked after a suspicion")
	}
	if l.suspect(); all.Err() != nil {
		t.Error("a second suspicion ends the search of the first")
	}
	l.alive(12 * second)
	if wide, doubted := l.doubting(calm); wide || doubted || all.Err() == nil || l.pulse.patience != int64(firstPatience) {
		t.Errorf("a link that was heard is doubted: %v, %v; its patience is %d", wide, doubted, l.pulse.patience)
	}
}
