package client_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/client"
	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/session"
)

// far is an engine at the other end of a link that breaks: what is on its way when
// it does may have arrived or not, and answers are lost. It is for a bubble, in
// which time costs nothing.
type far struct {
	g    *client.SessionMux
	s    *holdfast.Space
	rnd  *rand.Rand
	mu   sync.Mutex // of the machine and all below
	m    *core.Machine
	link *farLink  // nil: there is none
	sent int       // messages
	deny core.Code // of every frame; CodeOK: they are taken
	// minTTL is what the sessions have to have that it opens.
	minTTL time.Duration
}

// farLink is one connection.
type farLink struct {
	in      chan []byte
	out     chan []byte
	ctx     context.Context
	cancel  context.CancelFunc
	streams map[core.SessionID]uint64
}

// latency is how long a message takes in one direction.
const latency = 2 * time.Millisecond

func openFar(t *testing.T, seed uint64) *far {
	t.Helper()
	f := &far{rnd: rand.New(rand.NewPCG(seed, 9)), m: core.New(core.Config{})}
	f.g = client.NewGroup(f, client.Options{Down: true, Merge: true})
	s, err := holdfast.New(f.g.New(client.Full("far", time.Second)))
	if err != nil {
		t.Fatal(err)
	}
	f.s = s
	t.Cleanup(func() { s.Close() })
	return f
}

// mend makes a link, if there is none.
func (f *far) mend() {
	f.mu.Lock()
	if f.link != nil {
		f.mu.Unlock()
		return
	}
	l := &farLink{in: make(chan []byte, 10_000), out: make(chan []byte, 10_000), streams: map[core.SessionID]uint64{}}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	f.link = l
	f.mu.Unlock()
	go f.serve(l)
	go f.deliver(l)
	f.g.Connect()
}

// cut breaks the link: some of what was asked for arrives, no answer does.
func (f *far) cut() {
	f.mu.Lock()
	l := f.link
	f.link = nil
	f.mu.Unlock()
	if l == nil {
		return
	}
	l.cancel()
	for range f.rnd.IntN(len(l.in) + 1) {
		f.apply(l, <-l.in)
	}
	f.g.Disconnect()
}

// serve is the server's side.
func (f *far) serve(l *farLink) {
	for {
		select {
		case b := <-l.in:
			<-time.After(latency)
			f.apply(l, b)
		case <-l.ctx.Done():
			return
		}
	}
}

func (f *far) deliver(l *farLink) {
	for {
		select {
		case b := <-l.out:
			<-time.After(latency)
			if l.ctx.Err() == nil {
				_ = f.g.Receive(b)
			}
		case <-l.ctx.Done():
			return
		}
	}
}

// apply makes an entry of a message and answers it.
func (f *far) apply(l *farLink, b []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m, _, err := session.DecodeMessage(b)
	if err != nil {
		panic(err)
	}
	e := core.Entry{Now: f.g.Now()}
	switch m.Kind {
	case session.KindAttach:
		l.streams[m.Session] = m.Stream
		rows, known := f.m.Table(m.Session)
		l.answer(&session.Message{Kind: session.KindTable, Session: m.Session, Rows: rows, Known: known, Last: true})
		return
	case session.KindRenewal:
		e.Renewals = []core.Renewal{{Session: m.Session, Attempt: m.Attempt, TTL: m.TTL}}
	case session.KindFrame:
		if code := f.refuses(m.Body); code != core.CodeOK {
			l.refuse(&m, code)
			return
		}
		e.Frames = [][]byte{m.Body}
	}
	var out core.Output
	if err := f.m.Apply(core.AppendEntry(nil, &e), &out); err != nil {
		panic(err)
	}
	for i := range out.Renewed {
		r := &out.Renewed[i]
		l.answer(&session.Message{Kind: session.KindRenewed, Session: r.Session, Attempt: r.Attempt, Now: r.Now, Deadline: r.Deadline})
	}
	for i := range out.Replies {
		l.answer(&session.Message{Kind: session.KindReply, Session: out.Replies[i].Session, Body: core.AppendReply(nil, &out.Replies[i])})
	}
}

// refuses says why a frame is not taken; CodeOK: it is.
func (f *far) refuses(body []byte) core.Code {
	var frame core.Frame
	if err := core.DecodeFrame(body, &frame); err != nil {
		panic(err)
	}
	for i := range frame.Commands {
		if c := &frame.Commands[i]; c.Op == core.OpOpen && time.Duration(c.TTL) < f.minTTL {
			return core.CodeInvalid
		}
	}
	return f.deny
}

// refuse tells that a frame is not taken.
func (l *farLink) refuse(m *session.Message, code core.Code) {
	var f core.Frame
	if err := core.DecodeFrame(m.Body, &f); err != nil {
		panic(err)
	}
	l.answer(&session.Message{Kind: session.KindRefused, Session: m.Session, Attempt: f.Attempt, Refusal: session.RefusedDenied, Code: code, Text: "no"})
}

func (l *farLink) answer(m *session.Message) {
	m.Stream = l.streams[m.Session]
	l.out <- session.AppendMessage(nil, m)
}

func (f *far) Carry(_ int64, sends []client.Outgoing) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.link == nil {
		return
	}
	for i := range sends {
		f.sent++
		f.link.in <- session.AppendMessage(nil, &sends[i].Message)
	}
}

func (f *far) Redial(string)              {}
func (f *far) Silent()                    {}
func (f *far) Forget(core.SessionID)      {}
func (f *far) Ping(context.Context) error { return nil }
func (f *far) Left()                      { f.cut() }

var errNone = errors.New("not here")

func (f *far) Inspect(context.Context, *driver.InspectRequest) (driver.InspectReply, error) {
	return driver.InspectReply{}, errNone
}

func (f *far) SessionInfo(context.Context, *driver.SessionInfoRequest) (driver.SessionInfo, error) {
	return driver.SessionInfo{}, errNone
}

func (f *far) Watch(context.Context, *driver.WatchRequest) (client.Feed, uint64, error) {
	return nil, 0, errNone
}
