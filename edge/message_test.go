package edge

import (
	"encoding/binary"
	"hash/crc32"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"
	"unique"

	"github.com/holdfast-io/holdfast/crdt"
	"github.com/holdfast-io/holdfast/limit"
)

// tape is a link that keeps what is sent.
type tape struct{ sent [][]byte }

func (l *tape) Listen(func([]byte)) (func(), error) { return func() {}, nil }

func (l *tape) Send(m []byte) error {
	l.sent = append(l.sent, slices.Clone(m))
	return nil
}

// recorded are messages of a node with counters and windows, relayed ones too.
func recorded(t testing.TB) [][]byte {
	link := &tape{}
	n := open(t, Config{Actor: "a", Link: link})
	n.Close()
	l := limiter(t, n, LimiterConfig{Rate: ten})
	add(t, n, "x", 300)
	take(t, l, "k", 3)
	n.flush(false, false)
	other := message{sender: n.me, run: 1, windows: []window{{limiter: "l", per: int64(ten.Per), algorithm: ten.Algorithm, key: "k", epoch: l.rule.epoch(time.Now().UnixNano()), slots: []slot{{actorOf("b"), pair{2, 1}}}}}}
	n.apply(&other, time.Time{})
	n.flush(true, false)
	return link.sent
}

// listener is a node that receives by hand.
func listener(t testing.TB) (*Node, *Limiter) {
	n := open(t, Config{Actor: "listener"})
	return n, limiter(t, n, LimiterConfig{Rate: ten})
}

// TestGarbage: a message with a flipped bit, cut off or too long is counted and
// changes nothing.
func TestGarbage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, l := listener(t)
		sent, bad := recorded(t), uint64(0)
		for _, m := range sent {
			for i := range m {
				flipped := slices.Clone(m)
				flipped[i] ^= 1 << (i % 8)
				n.receive(flipped)
				n.receive(m[:i])
				bad += 2
			}
			n.receive(append(slices.Clone(m), 0))
			bad++
		}
		if s := n.Stats(); bad < 100 || s.Garbage != bad || s.Received != bad || l.Keys() != 0 || len(n.AllCounts()) != 0 {
			t.Fatalf("%d were bad: %+v", bad, s)
		}
		for _, m := range sent {
			n.receive(m)
		}
		if n.Count("x") != 300 || l.Count("k", time.Now()) != 5 {
			t.Fatalf("%d, %d", n.Count("x"), l.Count("k", time.Now()))
		}
	})
}

// TestReplay: messages that come again are counted and change nothing, at once and
// after their window.
func TestReplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, l := listener(t)
		sent := recorded(t)
		for range 3 {
			for _, m := range sent {
				n.receive(m)
			}
		}
		if s := n.Stats(); s.Repeated != uint64(2*len(sent)) || n.Count("x") != 300 || l.Count("k", time.Now()) != 5 {
			t.Fatalf("%+v", s)
		}
		pass(time.Minute)
		fresh, later := listener(t)
		for _, m := range sent {
			fresh.receive(m)
		}
		if later.Keys() != 0 || fresh.Count("x") != 300 {
			t.Fatalf("an old window came back: %v", later.AllCounts(time.Now()))
		}
	})
}

// TestHalfAMessage: a message that goes wrong at its end changes nothing.
func TestHalfAMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, _ := listener(t)
		for _, m := range recorded(t) {
			n.receive(seal(append(m[:len(m)-4:len(m)-4], 99)))
		}
		if s := n.Stats(); s.Garbage != s.Received || len(n.AllCounts()) != 0 {
			t.Fatalf("%+v, %v", s, n.AllCounts())
		}
	})
}

// seal ends a message as the sender does.
func seal(m []byte) []byte {
	return binary.LittleEndian.AppendUint32(m, crc32.Checksum(m, table))
}

// FuzzReceive: whatever comes, with a right checksum too, a node does not panic, its
// own counts never shrink, no amount is out of range, and the same again is nothing
// new. Its clock stands still, so that no window ends meanwhile.
func FuzzReceive(f *testing.F) {
	now := time.Now()
	for _, m := range recorded(f) {
		f.Add(m[:len(m)-4])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		n := open(t, Config{Actor: "listener", Now: func() time.Time { return now }})
		l := limiter(t, n, LimiterConfig{Rate: ten})
		add(t, n, "x", 1)
		if _, err := l.Take("k", now, 1); err != nil {
			t.Fatal(err)
		}
		n.receive(b)
		n.receive(seal(slices.Clone(b)))
		counts, keys := n.AllCounts(), l.AllCounts(now)
		if counts["x"] < 1 {
			t.Fatalf("%v", counts)
		}
		for key, c := range keys {
			if c < 0 {
				t.Fatalf("%q has %d", key, c)
			}
			if d, err := l.Take(key, now, 1); err != nil || d.Allowed && c >= ten.Count || d.RetryAfter < 0 && d.RetryAfter != limit.Never {
				t.Fatalf("%q: %+v, %v", key, d, err)
			}
		}
		keys = l.AllCounts(now)
		n.receive(seal(slices.Clone(b)))
		if !maps.Equal(counts, n.AllCounts()) || !maps.Equal(keys, l.AllCounts(now)) {
			t.Fatal("a message that came again changed something")
		}
	})
}

// A message that comes again, or after a later one, says nothing of when its node was there, how long its last message was
// on its way, and what it has counted.
func TestLateIsOld(t *testing.T) {
	now := time.UnixMilli(1_000_000_000)
	p := peers{known: map[crdt.Actor]*peer{}}
	a, me := crdt.Actor{Node: "a", Incarnation: 1}, crdt.Actor{Node: "me", Incarnation: 1}
	sent := func(seq uint64) *message {
		return &message{sender: a, seq: seq, total: seq, sent: now.Add(time.Duration(seq) * time.Second).UnixMilli()}
	}
	p.note(me, sent(1), now.Add(time.Second), time.Minute)
	p.note(me, sent(3), now.Add(4*time.Second), time.Minute)
	for _, seq := range []uint64{3, 2, 1} {
		p.note(me, sent(seq), now.Add(time.Minute), time.Minute)
	}
	got := p.list(now.Add(time.Minute), time.Time{}, 0)[0]
	if !got.Heard.Equal(now.Add(4*time.Second)) || got.Lag != time.Second || got.Total != 3 {
		t.Errorf("%+v", got)
	}
}

// TestKeptIsOld: a message that a Keeper kept tells when its sender was there, not that
// it is.
func TestKeptIsOld(t *testing.T) {
	now := time.UnixMilli(1_000_000_000)
	p := peers{known: map[crdt.Actor]*peer{}}
	gone, other, me := crdt.Actor{Node: "gone", Incarnation: 1}, crdt.Actor{Node: "other", Incarnation: 1}, crdt.Actor{Node: "me", Incarnation: 1}
	p.note(me, &message{sender: gone, seq: 1, kept: true, sent: now.Add(-time.Minute).UnixMilli()}, now, time.Minute)
	p.note(me, &message{sender: other, seq: 1, sent: now.Add(-time.Second).UnixMilli()}, now, time.Minute)
	if list := p.list(now, time.Time{}, 0); list[0].Heard != now.Add(-time.Minute) || list[0].Lag != 0 || list[1].Heard != now || list[1].Lag != time.Second {
		t.Fatalf("%+v", list)
	}
	v := p.view(me, now, 30*time.Second)
	if !v.tells(unique.Make(me)) || !v.tells(unique.Make(gone)) || v.tells(unique.Make(other)) {
		t.Error("a node has to tell of itself and of those that are gone, and only of them")
	}
}
