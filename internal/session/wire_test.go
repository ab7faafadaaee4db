package session_test

import (
	"bytes"
	"errors"
	"reflect"
	"testing"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/session"
)

// messages has one of every kind, with every field that it carries set.
func messages() []session.Message {
	row := func(n uint64) core.ClaimRow {
		return core.ClaimRow{Session: testID, Seq: n, State: core.ClaimGone, Code: core.CodeMaxHold, Token: 1 << 52, Deadline: -5}
	}
	return []session.Message{
		{Kind: session.KindAttach, Session: testID, Stream: 3},
		{Kind: session.KindFrame, Session: testID, Stream: 1 << 40, Body: []byte("frame")},
		{Kind: session.KindRenewal, Session: testID, Stream: 1, Attempt: 9, TTL: 1e12},
		{Kind: session.KindReply, Session: testID, Stream: 1, Pushes: 4, Body: []byte("reply")},
		{Kind: session.KindRenewed, Session: testID, Stream: 1, Pushes: 5, Attempt: 9, Now: -1, Deadline: 1 << 60},
		{Kind: session.KindPush, Session: testID, Stream: 1, Pushes: 6, Rows: []core.ClaimRow{row(7)}},
		{Kind: session.KindTable, Session: testID, Stream: 1, Piece: 2, Last: true, Known: true, Rows: []core.ClaimRow{row(8), row(9)}},
		{Kind: session.KindTable, Session: testID, Stream: 1},
		{Kind: session.KindRefused, Session: testID, Stream: 1, Attempt: 2, Refusal: session.RefusedNoLeader,
			Code: core.CodeUnavailable, Text: "no leader", RetryAfter: 5e8, Endpoint: "b:1"},
	}
}

func TestMessagesComeBack(t *testing.T) {
	var batch []byte
	for _, m := range messages() {
		batch = session.AppendMessage(batch, &m)
	}
	for i, want := range messages() {
		m, rest, err := session.DecodeMessage(batch)
		if err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
		if !reflect.DeepEqual(m, want) {
			t.Errorf("message %d:\n got %+v\nwant %+v", i, m, want)
		}
		batch = rest
	}
	if len(batch) != 0 {
		t.Errorf("%d bytes left over", len(batch))
	}
}

// What is cut has whole messages and as many as fit, and misses none.
func TestCut(t *testing.T) {
	var batch []byte
	longest := 0
	for _, m := range messages() {
		n := len(batch)
		batch = session.AppendMessage(batch, &m)
		longest = max(longest, len(batch)-n)
	}
	for size := range len(batch) + 1 {
		var all []byte
		for left, first := batch, []byte(nil); len(left) > 0; {
			first, left = session.Cut(left, size)
			all = append(all, first...)
			n := 0
			for rest := first; len(rest) > 0; n++ {
				var err error
				if _, rest, err = session.DecodeMessage(rest); err != nil {
					t.Fatalf("at most %d bytes: %v", size, err)
				}
			}
			if n == 0 || n > 1 && len(first) > size || len(left) > 0 && len(first) < size-longest {
				t.Fatalf("at most %d bytes: %d messages of %d bytes", size, n, len(first))
			}
		}
		if !bytes.Equal(all, batch) {
			t.Fatalf("at most %d bytes: %d of %d came", size, len(all), len(batch))
		}
	}
}

func TestCutMessagesAreRefused(t *testing.T) {
	for _, m := range messages() {
		whole := session.AppendMessage(nil, &m)
		for n := range len(whole) {
			if _, _, err := session.DecodeMessage(whole[:n]); !errors.Is(err, session.ErrMalformed) {
				t.Fatalf("kind %d cut at %d of %d: %v", m.Kind, n, len(whole), err)
			}
		}
	}
}

func TestUnknownVersionIsRefused(t *testing.T) {
	b := session.AppendMessage(nil, &session.Message{Kind: session.KindAttach})
	b[0]++
	if _, _, err := session.DecodeMessage(b); !errors.Is(err, session.ErrMalformed) {
		t.Fatalf("a newer version was read: %v", err)
	}
}

// What decodes has exactly one encoding, and no input asks for more memory than
// it brings.
func FuzzDecodeMessage(f *testing.F) {
	for _, m := range messages() {
		f.Add(session.AppendMessage(nil, &m))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, rest, err := session.DecodeMessage(b)
		if err != nil {
			return
		}
		if got := session.AppendMessage(nil, &m); !bytes.Equal(got, b[:len(b)-len(rest)]) {
			t.Fatalf("%x decodes to %+v, which encodes to %x", b, m, got)
		}
		if len(m.Rows) > len(b) {
			t.Fatalf("%d rows from %d bytes", len(m.Rows), len(b))
		}
	})
}

// A session must survive whatever a server sends.
func FuzzReceive(f *testing.F) {
	var batch []byte
	for _, m := range messages() {
		batch = session.AppendMessage(batch, &m)
	}
	f.Add(batch)
	f.Fuzz(func(t *testing.T, b []byte) {
		r := opened(t, session.Config{})
		r.hold("a", 0, sec(30))
		r.acquire("b")
		r.flush()
		for {
			m, rest, err := session.DecodeMessage(b)
			if err != nil {
				return
			}
			r.now += 3e8
			r.receive(m)
			r.flush()
			b = rest
		}
	})
}
