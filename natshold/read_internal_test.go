package natshold

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/holdfast-io/holdfast/driver"
)

// filled is a bucket with n keys of a size, and three others, of which one has two states.
func filled(t *testing.T, n, size int) *store {
	t.Helper()
	s, _ := counted(t)
	for i := range n {
		if _, err := s.js.PublishAsync(fmt.Sprint(s.prefix, "k.x", i), make([]byte, size)); err != nil {
			t.Fatal(err)
		}
		if i%1000 == 0 {
			<-s.js.PublishAsyncComplete()
		}
	}
	for _, key := range []string{"k/y1", "k/y2", "k/y2", "l/y1"} {
		item, err := s.Get(t.Context(), key)
		if err == nil {
			_, err = s.Swap(t.Context(), key, item.Revision, []byte("small"))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	<-s.js.PublishAsyncComplete()
	return s
}

// listed lists, and says what came over the connection.
func listed(t *testing.T, s *store, prefix string) (items []driver.Item, came uint64) {
	t.Helper()
	before := s.conn.Stats().InBytes
	items, err := s.List(t.Context(), prefix)
	if err != nil {
		t.Fatal(err)
	}
	return items, s.conn.Stats().InBytes - before
}

// TestListOfMany: what is there is told whatever it takes to read it: many pieces, and values that
// are larger than one.
func TestListOfMany(t *testing.T) {
	for _, c := range []struct{ keys, size int }{{sampleKeys + pieceMessages + 1, 1}, {5, 2 * pieceBytes}, {3 * fewKeys, pieceBytes / 3}} {
		s := filled(t, c.keys, c.size)
		for prefix, want := range map[string]int{"": c.keys + 4, "k/": c.keys + 2, "k/x": c.keys, "k/y": 2, "l/y": 1, "k/z": 0} {
			items, _ := listed(t, s, prefix)
			if len(items) != want {
				t.Errorf("%d keys of %d bytes: %d begin with %q, want %d", c.keys, c.size, len(items), prefix, want)
			}
			for _, i := range items {
				if i.Revision == 0 || len(i.Value) == 0 {
					t.Errorf("%d keys of %d bytes: %s at %d has %d bytes", c.keys, c.size, i.Key, i.Revision, len(i.Value))
				}
			}
		}
	}
}

// TestListWithoutOthers: the values of keys that begin otherwise are not sent.
func TestListWithoutOthers(t *testing.T) {
	s := filled(t, 10, pieceBytes)
	for prefix, want := range map[string]int{"k/y": 2, "k/z": 0} {
		if items, came := listed(t, s, prefix); len(items) != want || came > pieceBytes {
			t.Errorf("%d keys begin with %q, and %d bytes came", len(items), prefix, came)
		}
	}
}

// TestReadInPieces: no more than a piece is on its way while a reader is busy, so that a
// renewal is answered meanwhile.
func TestReadInPieces(t *testing.T) {
	for _, c := range []struct{ keys, size int }{{4 * pieceMessages, 1}, {32, pieceBytes / 2}} {
		s := filled(t, c.keys, c.size)
		before := s.conn.Stats()
		err := s.read(t.Context(), "k.*", &nats.ConsumerConfig{DeliverPolicy: nats.DeliverAllPolicy}, func(*change) bool {
			for range 20 { // each answer comes behind what the server has sent before
				if _, err := s.last(t.Context(), markKey); err != nil {
					t.Error(err)
				}
			}
			return false
		})
		if err != nil {
			t.Fatal(err)
		}
		now := s.conn.Stats()
		if now.InMsgs-before.InMsgs > pieceMessages+30 || now.InBytes-before.InBytes > 2*pieceBytes {
			t.Errorf("%d messages and %d bytes came at once", now.InMsgs-before.InMsgs, now.InBytes-before.InBytes)
		}
	}
}

// TestReadsTakeTurns: a reader that has to wait for others is not taken for unanswered.
func TestReadsTakeTurns(t *testing.T) {
	s, b := counted(t)
	for range readsAtATime {
		s.reads <- struct{}{}
	}
	done := make(chan error, 1)
	go func() {
		_, err := s.List(t.Context(), "")
		done <- err
	}()
	for range 3 {
		if _, err := s.last(t.Context(), markKey); err != nil {
			t.Fatal(err)
		}
	}
	if n := b.asked.Load(); n != 0 {
		t.Errorf("%d began beside %d", n, readsAtATime)
	}
	<-s.reads
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestReadBesideRemovals: messages that are removed while others are sent let the server count too few,
// and stop; the others are read nevertheless.
func TestReadBesideRemovals(t *testing.T) {
	s, _ := counted(t)
	var keys []string
	for i := range 3 * pieceLast {
		keys = append(keys, fmt.Sprintf("a%02d", i))
	}
	keys = append(append(keys, slices.Repeat([]string{"b"}, 40)...), "c", "d")
	var states []uint64
	for _, key := range keys {
		ack, err := s.js.Publish(s.prefix+"k."+key, make([]byte, pieceBytes/2))
		if err != nil {
			t.Fatal(err)
		}
		states = append(states, ack.Sequence)
	}
	removed := map[string]uint64{"k.b": states[len(states)-4], "k.a40": states[40], "k.a41": states[41], "k.c": states[len(states)-2]}
	var got []string
	err := s.read(t.Context(), "k.*", &nats.ConsumerConfig{DeliverPolicy: nats.DeliverLastPerSubjectPolicy}, func(c *change) bool {
		if got = append(got, c.item.Key); len(got) == 1 {
			for key, last := range removed {
				if err := s.forget(t.Context(), s.prefix+key, last); err != nil {
					t.Error(err)
				}
			}
		}
		return true
	})
	want := slices.DeleteFunc(slices.Compact(keys), func(k string) bool { return k != "b" && removed["k."+k] > 0 })
	if len(got) != len(want) || err != nil {
		t.Errorf("beside removals %d of %d were read, %v: %q", len(got), len(want), err, got)
	}
}

// TestReadBehindManyRemovals: a reader is not taken for one that has missed something while it passes very many messages
// that others have removed, also if it has read none before.
func TestReadBehindManyRemovals(t *testing.T) {
	t.Run("in the middle", func(t *testing.T) { readBehindRemovals(t, pieceLast) }) // a whole piece: none of it is on its way
	t.Run("at the beginning", func(t *testing.T) { readBehindRemovals(t, 0) })
}

// readBehindRemovals reads, while all keys but the last are removed when some were read, or as soon
// as the first feed has begun.
func readBehindRemovals(t *testing.T, afterMessages int) {
	s, b := counted(t)
	const many = 200
	subject := func(i int) string { return fmt.Sprintf("%sk.a%03d", s.prefix, i) }
	for i := range many {
		if _, err := s.js.Publish(subject(i), make([]byte, pieceBytes/64)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.js.Publish(s.prefix+"k.z", []byte("z")); err != nil {
		t.Fatal(err)
	}
	remove := func() {
		if err := atOnce(many, func(i int) error { return s.forget(t.Context(), subject(i), math.MaxInt64) }); err != nil {
			t.Error(err)
		}
	}
	b.begun = func(n int32) {
		if n == 1 && afterMessages == 0 {
			remove()
		}
	}
	got := 0
	err := s.read(t.Context(), "k.*", &nats.ConsumerConfig{DeliverPolicy: nats.DeliverLastPerSubjectPolicy}, func(c *change) bool {
		if got++; got == afterMessages {
			remove()
		}
		return true
	})
	if got != afterMessages+1 || err != nil {
		t.Errorf("%d were read, want %d: %v", got, afterMessages+1, err)
	}
}

// TestReadBesideWriters: what others write meanwhile is read as it has come, and not each with a question whether it
// was the last.
func TestReadBesideWriters(t *testing.T) {
	s, _ := counted(t)
	const many = 300
	if _, err := s.js.Publish(s.prefix+"k.first", []byte("v")); err != nil {
		t.Fatal(err)
	}
	got, before := 0, uint64(0)
	err := s.read(t.Context(), "k.*", &nats.ConsumerConfig{DeliverPolicy: nats.DeliverAllPolicy}, func(c *change) bool {
		if got++; got == 1 {
			for i := range many {
				if _, err := s.js.Publish(fmt.Sprint(s.prefix, "k.x", i), []byte("v")); err != nil {
					t.Error(err)
				}
			}
			before = s.conn.Stats().OutMsgs
		}
		return true
	})
	if asked := s.conn.Stats().OutMsgs - before; got != many+1 || err != nil || asked > many/4 {
		t.Errorf("%d were read, with %d requests: %v", got, asked, err)
	}
}
