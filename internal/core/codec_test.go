package core_test

import (
	"bytes"
	"errors"
	"reflect"
	"testing"

	"github.com/holdfast-io/holdfast/internal/core"
)

// full has every field set.
func full() core.Command {
	session := sessionID(7)
	return core.Command{
		Op: core.OpTxn, Seq: 1 << 60, Target: 9, Flags: core.Try | core.Fleeting,
		Wants: []core.Want{{Name: "a", Kind: core.Semaphore, Mode: core.Shared, Weight: -3, Limit: 40}, {Name: "b"}},
		Wait:  -1, MaxHold: 2, MinHold: 3, Delay: 4, Value: []byte("value"),
		Name: "näme", Kind: core.Latch, Token: 5, Limit: -6, Count: core.CountSwap, Unsigned: true, A: 1 << 63, B: 8,
		Session: sessionID(1), Namespace: "ns", Identity: "id", Owner: "owner", Meta: "meta", TTL: 30e9, Window: 64,
		Policy: core.Never, Grace: 9,
		If: []core.Compare{{Key: "k", Prefix: true, Target: core.CompareSession, Is: core.Greater, Num: 1, Value: []byte("x"), Session: session}, {}},
		Then: []core.KeyOp{{Kind: core.KeyPut, Key: "k", Prefix: true, Value: []byte("v"), Session: session, Expire: -5, Limit: 6,
			Sort: core.ByValue, Desc: true, KeysOnly: true, Previous: true}, {}},
		Else: []core.KeyOp{{Kind: core.KeyDelete, Key: "k"}},
	}
}

func fullFrame() core.Frame {
	return core.Frame{Session: sessionID(3), Attempt: 300, Mark: 12, Commands: []core.Command{full(), {Op: core.OpEnd}, {Op: core.OpOpen, TTL: 1}}}
}

func fullReply() core.Reply {
	k := core.Key{Name: "k", Value: []byte("v"), Created: 1, Modified: 2, Version: 3, Session: sessionID(1), Deadline: -4}
	return core.Reply{Session: sessionID(3), Attempt: 4, Now: 5, Deadline: 6, Results: []core.Result{{
		Seq: 1, Code: core.CodeHeld, Text: "why", Revision: 2, Token: 3, Deadline: -4, Number: 5, OK: true, Window: 6,
		Holders: []core.Holder{{Session: sessionID(9), Owner: "o", Meta: "m", Mode: core.Shared, Weight: 2, Token: 3, Since: 4, Deadline: 5, Revoked: true}},
		Waiting: 7, Keys: []core.KeyResult{{Keys: []core.Key{k, k}, Count: 8, More: true}, {}},
	}, {Seq: 2}}}
}

func TestRoundTrip(t *testing.T) {
	f, entry := fullFrame(), core.Entry{Version: core.EntryVersion, Now: 1 << 40, Renewals: []core.Renewal{{Session: sessionID(2), Attempt: 3, TTL: 4}}}
	entry.Frames = [][]byte{core.AppendFrame(nil, &f), {}}
	raise := core.Entry{Version: core.EntryVersion, Kind: core.EntryRaise, Now: 1, Revision: core.MaxRevision - 1, Renewals: []core.Renewal{}, Frames: [][]byte{}}
	r, p := fullReply(), core.Push{Session: sessionID(1), Seq: 2, State: core.ClaimGone, Code: core.CodeMaxHold, Token: 3, Deadline: 4}
	n := core.Renewed{Session: sessionID(1), Attempt: 2, Now: 3, Deadline: 4}
	var f2 core.Frame
	var e2 core.Entry
	var r2 core.Reply
	var p2 core.Push
	var n2 core.Renewed
	for range 2 { // the second time into used memory
		alike(t, "frame", core.DecodeFrame(core.AppendFrame(nil, &f), &f2), f, f2)
		alike(t, "entry", core.DecodeEntry(core.AppendEntry(nil, &entry), &e2), entry, e2)
		alike(t, "raise", core.DecodeEntry(core.AppendEntry(nil, &raise), &e2), raise, e2)
		alike(t, "reply", core.DecodeReply(core.AppendReply(nil, &r), &r2), r, r2)
		alike(t, "push", core.DecodePush(core.AppendPush(nil, &p), &p2), p, p2)
		alike(t, "renewed", core.DecodeRenewed(core.AppendRenewed(nil, &n), &n2), n, n2)
	}
}

func alike[T any](t *testing.T, what string, err error, want, got T) {
	t.Helper()
	if err != nil || !reflect.DeepEqual(want, got) {
		t.Errorf("%s came back as %+v, %v; want %+v", what, got, err, want)
	}
}

// Everything that a decoder is given, cut short or grown by a byte, is an error,
// and so is every version but ours.
func TestTruncated(t *testing.T) {
	f, r := fullFrame(), fullReply()
	p, n := core.Push{State: core.ClaimGranted}, core.Renewed{Now: 1}
	decoders := map[string]struct {
		b      []byte
		decode func([]byte) error
	}{
		"frame":   {core.AppendFrame(nil, &f), func(b []byte) error { return core.DecodeFrame(b, &core.Frame{}) }},
		"entry":   {core.AppendEntry(nil, &core.Entry{Now: 9, Frames: [][]byte{{1, 2}}}), func(b []byte) error { return core.DecodeEntry(b, &core.Entry{}) }},
		"reply":   {core.AppendReply(nil, &r), func(b []byte) error { return core.DecodeReply(b, &core.Reply{}) }},
		"push":    {core.AppendPush(nil, &p), func(b []byte) error { return core.DecodePush(b, &core.Push{}) }},
		"renewed": {core.AppendRenewed(nil, &n), func(b []byte) error { return core.DecodeRenewed(b, &core.Renewed{}) }},
	}
	for name, d := range decoders {
		for i := range d.b {
			if err := d.decode(d.b[:i]); !errors.Is(err, core.ErrFrame) {
				t.Errorf("%s cut to %d bytes: %v", name, i, err)
			}
		}
		if err := d.decode(append(bytes.Clone(d.b), 0)); !errors.Is(err, core.ErrFrame) {
			t.Errorf("%s with a trailing byte: %v", name, err)
		}
		d.b[0]++
		if err := d.decode(d.b); !errors.Is(err, core.ErrVersion) {
			t.Errorf("%s of the next version: %v", name, err)
		}
	}
}

// A machine that is given what it cannot decode is as it was, even if the first
// frames of the entry are good.
func TestBadInput(t *testing.T) {
	r := newRig(core.Config{})
	id := r.open(1, 30e9)
	good := core.AppendFrame(nil, &core.Frame{Session: id, Commands: []core.Command{{Op: core.OpEnd}}})
	with := func(change func([]byte) []byte) []byte {
		return core.AppendEntry(nil, &core.Entry{Now: 1e18, Frames: [][]byte{good, change(bytes.Clone(good))}})
	}
	name := core.AppendFrame(nil, &core.Frame{Commands: []core.Command{{Op: core.OpForce, Seq: 1, Name: string(make([]byte, 70_000)), Token: 1}}})
	cases := map[string][]byte{
		"nothing":              {},
		"garbage":              []byte("garbage, surely"),
		"a frame, no entry":    good,
		"trailing byte":        append(with(func(b []byte) []byte { return b }), 0),
		"future entry":         append([]byte{core.EntryVersion + 1}, with(func(b []byte) []byte { return b })[1:]...),
		"future frame":         with(func(b []byte) []byte { b[0]++; return b }),
		"truncated frame":      with(func(b []byte) []byte { return b[:len(b)-1] }),
		"empty frame":          with(func([]byte) []byte { return nil }),
		"unknown op":           with(func(b []byte) []byte { b[len(b)-3] = 99; return b }),
		"op 0":                 with(func(b []byte) []byte { b[len(b)-3] = 0; return b }),
		"unknown field":        with(func(b []byte) []byte { return append(b[:len(b)-1], 0x80, 0x80, 0x80, 0x80, 0x01) }),
		"number spelled long":  with(func(b []byte) []byte { return append(b[:len(b)-1], 0x80, 0x00) }),
		"announced but absent": with(func(b []byte) []byte { return append(b[:len(b)-1], 0x02, 0x00) }),
		"command too long":     with(func([]byte) []byte { return name }),
		"frame too long":       with(func(b []byte) []byte { return append(b, make([]byte, core.MaxFrame)...) }),
		"freeze with a frame":  core.AppendEntry(nil, &core.Entry{Kind: core.EntryFreeze, Frames: [][]byte{good}}),
		"unknown entry kind":   core.AppendEntry(nil, &core.Entry{Kind: 9}),
		"raise of before":      core.AppendEntry(nil, &core.Entry{Kind: core.EntryRaise, Revision: 9, Version: 5}),
		"raise out of range":   core.AppendEntry(nil, &core.Entry{Kind: core.EntryRaise, Revision: core.MaxRevision}),
		"seconds in a stamp":   core.AppendEntry(nil, &core.Entry{Seconds: 9, Version: 2}),
	}
	for what, b := range cases {
		hash, rev := r.m.Hash(), r.m.Revision()
		r.out.Reset()
		err := r.m.Apply(b, &r.out)
		if !errors.Is(err, core.ErrFrame) && !errors.Is(err, core.ErrVersion) {
			t.Errorf("%s: %v", what, err)
		}
		if _, ok := r.m.Session(id); !ok || r.m.Hash() != hash || r.m.Revision() != rev || r.m.Now() != 0 || len(r.out.Replies) > 0 {
			t.Fatalf("%s: something has changed", what)
		}
	}
}

func FuzzFrame(f *testing.F) {
	frame := fullFrame()
	f.Add(core.AppendFrame(nil, &frame))
	f.Add(core.AppendFrame(nil, &core.Frame{}))
	var got core.Frame
	f.Fuzz(func(t *testing.T, b []byte) {
		if core.DecodeFrame(b, &got) == nil && !bytes.Equal(core.AppendFrame(nil, &got), b) {
			t.Errorf("%x has a second spelling", b)
		}
	})
}

// FuzzEntry also applies what decodes: no entry makes the machine panic.
func FuzzEntry(f *testing.F) {
	l, m := newLoad(1), core.New(core.Config{})
	for range 50 {
		f.Add(l.next(m, nil))
	}
	f.Add(core.AppendEntry(nil, &core.Entry{Kind: core.EntryForget, Seconds: 9}))
	f.Add(core.AppendEntry(nil, &core.Entry{Version: 1, Now: 9}))
	f.Add(core.AppendEntry(nil, &core.Entry{Kind: core.EntryRaise, Revision: 1 << 50}))
	f.Add(core.AppendEntry(nil, &core.Entry{Kind: core.EntryQuota, Quota: core.Quota{Sessions: 1, Waiters: 1 << 30}}))
	var got core.Entry
	f.Fuzz(func(t *testing.T, b []byte) {
		if core.DecodeEntry(b, &got) != nil {
			return
		}
		if !bytes.Equal(core.AppendEntry(nil, &got), b) {
			t.Errorf("%x has a second spelling", b)
		}
		m := core.New(core.Config{Budget: 3})
		hash := m.Hash()
		if m.Apply(b, nil) != nil && m.Hash() != hash {
			t.Errorf("%x is refused, but changed something", b)
		}
		_ = m.Apply(b, nil)
	})
}

func FuzzReply(f *testing.F) {
	r := fullReply()
	f.Add(core.AppendReply(nil, &r))
	var got core.Reply
	f.Fuzz(func(t *testing.T, b []byte) {
		if core.DecodeReply(b, &got) == nil && !bytes.Equal(core.AppendReply(nil, &got), b) {
			t.Errorf("%x has a second spelling", b)
		}
	})
}

func FuzzPush(f *testing.F) {
	f.Add(core.AppendPush(nil, &core.Push{Seq: 1, State: core.ClaimGranted, Token: 9, Deadline: -1}))
	f.Add(core.AppendRenewed(nil, &core.Renewed{Attempt: 1, Now: 9, Deadline: 300}))
	f.Fuzz(func(t *testing.T, b []byte) {
		var p core.Push
		if core.DecodePush(b, &p) == nil && !bytes.Equal(core.AppendPush(nil, &p), b) {
			t.Errorf("%x has a second spelling", b)
		}
		var n core.Renewed
		if core.DecodeRenewed(b, &n) == nil && !bytes.Equal(core.AppendRenewed(nil, &n), b) {
			t.Errorf("%x has a second spelling", b)
		}
	})
}

// A decoder that has warmed up allocates nothing.
func TestDecodeAllocates(t *testing.T) {
	f, r := fullFrame(), fullReply()
	frame, reply := core.AppendFrame(nil, &f), core.AppendReply(nil, &r)
	var gotF core.Frame
	var gotR core.Reply
	n := testing.AllocsPerRun(100, func() {
		if core.DecodeFrame(frame, &gotF) != nil || core.DecodeReply(reply, &gotR) != nil {
			t.Fatal("does not decode")
		}
	})
	if n != 0 {
		t.Errorf("%v allocations a decoding", n)
	}
}
