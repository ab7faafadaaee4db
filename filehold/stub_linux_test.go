package filehold_test

import (
	"context"
	"errors"
	"iter"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/drivertest"
)

// TestConformance_OtherProcesses runs the suite with the clients of each case in
// different processes, none of which polls: whatever wakes is the kernel.
func TestConformance_OtherProcesses(t *testing.T) {
	o := &others{dir: t.TempDir(), opened: map[context.Context]int{}}
	for range 3 {
		o.farms = append(o.farms, startFarm(t))
	}
	drivertest.Run(t, drivertest.Harness{Open: o.open, Driver: o.driver})
}

// others opens clients in other processes, those of one case in one after the
// other.
type others struct {
	dir    string
	farms  []*farm
	mu     sync.Mutex
	opened map[context.Context]int // by the context of the case
}

func (o *others) driver(ctx context.Context) (driver.Driver, error) {
	o.mu.Lock()
	n := o.opened[ctx]
	o.opened[ctx] = n + 1
	o.mu.Unlock()
	if n == 0 {
		context.AfterFunc(ctx, func() { o.mu.Lock(); delete(o.opened, ctx); o.mu.Unlock() })
	}
	return o.farms[n%len(o.farms)].open(ctx, o.dir)
}

func (o *others) open(ctx context.Context, opts ...holdfast.Option) (*holdfast.Space, error) {
	d, err := o.driver(ctx)
	if err != nil {
		return nil, err
	}
	return holdfast.New(d, opts...)
}

// farm is another process that has drivers.
type farm struct {
	w     *wire
	mu    sync.Mutex
	last  uint64
	calls map[uint64]*call
	stubs map[uint64]*stub
	gone  error // why nothing is answered any more
}

// call is one that was not answered yet.
type call struct {
	reply chan *packet
	note  func(body any) // what it is told before
}

// startFarm starts a process, which has to end well when the test does.
func startFarm(t *testing.T, change ...func(*exec.Cmd)) *farm {
	t.Helper()
	f, end := newFarm(t, change...)
	t.Cleanup(func() {
		if err := end(); err != nil {
			t.Errorf("a process ended with %v", err)
		}
	})
	return f
}

// newFarm starts a process; the second result has it end, and says how it did.
func newFarm(t testing.TB, change ...func(*exec.Cmd)) (*farm, func() error) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "FILEHOLD_ROLE=host")
	cmd.Stderr = os.Stderr
	for _, f := range change {
		f(cmd)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	f := &farm{w: newWire(out, in), calls: map[uint64]*call{}, stubs: map[uint64]*stub{}}
	over := make(chan struct{})
	go func() { defer close(over); f.listen() }()
	return f, func() error {
		_ = in.Close()
		<-over
		return cmd.Wait()
	}
}

// listen hands out what the process says, until it is gone.
func (f *farm) listen() {
	for {
		p, err := f.w.receive()
		if err != nil {
			f.fail(err)
			return
		}
		f.mu.Lock()
		c, s := f.calls[p.Call], f.stubs[p.Space]
		if p.Last {
			delete(f.calls, p.Call)
		}
		f.mu.Unlock()
		switch {
		case p.Last:
			c.reply <- p
		case p.Call != 0:
			c.note(p.Body)
		default:
			s.note(p.Body)
		}
	}
}

func (f *farm) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gone = errors.Join(errors.New("the process is gone"), err)
	for _, c := range f.calls {
		c.reply <- &packet{Err: packed(f.gone)}
	}
	f.calls = map[uint64]*call{}
}

// open opens a driver there.
func (f *farm) open(ctx context.Context, dir string) (driver.Driver, error) {
	s := &stub{f: f, sessions: map[driver.SessionID]*driver.Session{}, fault: func(string, string, error) {}}
	f.mu.Lock()
	f.last++
	s.id = f.last
	f.stubs[s.id] = s
	f.mu.Unlock()
	var err error
	s.info, err = ask[driver.Info](ctx, s, openSpace{dir})
	return s, err
}

// stub is a driver that another process has.
type stub struct {
	driver.Base
	f        *farm
	id       uint64
	info     driver.Info
	fault    func(op, name string, err error)
	mu       sync.Mutex
	sessions map[driver.SessionID]*driver.Session
}

var _ driver.Driver = (*stub)(nil)

// note takes what the process tells on its own.
func (s *stub) note(body any) {
	switch n := body.(type) {
	case sessionEnded:
		s.session(n.Session).End(n.Why.unpacked())
	case faultTold:
		s.fault(n.Op, n.Name, n.Why.unpacked())
	}
}

// session is this side of a session.
func (s *stub) session(there *driver.Session) *driver.Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.sessions[there.ID]
	if l == nil {
		l = driver.NewSession(there.ID, there.Spec)
		s.sessions[there.ID] = l
	}
	return l
}

// call has the process do something, and returns when it has, which is soon
// after ctx has ended.
func (s *stub) call(ctx context.Context, body any, note func(any)) (any, error) {
	c := &call{reply: make(chan *packet, 1), note: note}
	s.f.mu.Lock()
	s.f.last++
	id, gone := s.f.last, s.f.gone
	s.f.calls[id] = c
	s.f.mu.Unlock()
	if gone != nil {
		return nil, gone
	}
	if err := s.f.w.send(&packet{Space: s.id, Call: id, Over: ctx.Err() != nil, Body: body}); err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { _ = s.f.w.send(&packet{Body: cancelCall{id}}) })()
	p := <-c.reply
	return p.Body, inContext(ctx, p.Err.unpacked())
}

// inContext is an error as the caller's context would have it: the process only
// knows that it has ended.
func inContext(ctx context.Context, err error) error {
	e, ok := err.(*driver.Error)
	if !ok || e.Kind != context.Canceled || ctx.Err() == nil {
		return err
	}
	e.Kind, e.Err = ctx.Err(), nil
	if why := context.Cause(ctx); why != e.Kind {
		e.Err = why
	}
	return e
}

// ask is a call with one kind of reply.
func ask[T any](ctx context.Context, s *stub, body any) (T, error) {
	reply, err := s.call(ctx, body, nil)
	v, _ := reply.(T)
	return v, err
}

func (s *stub) Info() driver.Info { return s.info }

func (s *stub) OnFault(f func(op, name string, err error)) { s.fault = f }

func (s *stub) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	reply, err := s.call(ctx, *r, func(body any) {
		if q, ok := body.(queuedAt); ok && r.Waiting != nil {
			r.Waiting(q.Position)
		}
	})
	if err != nil {
		return driver.Grant{}, err
	}
	return s.grant(reply.(grantReply)), nil
}

func (s *stub) grant(g grantReply) driver.Grant {
	g.Grant.Session, g.Grant.Handle = s.session(g.Grant.Session), &stubHandle{s, g.Handle}
	return g.Grant
}

// stubHandle is a hold that another process has.
type stubHandle struct {
	s  *stub
	id uint64
}

func (h *stubHandle) Release(ctx context.Context) error {
	_, err := h.s.call(ctx, useHandle{Handle: h.id}, nil)
	return err
}

func (h *stubHandle) Change(ctx context.Context, ch driver.Change) (driver.Grant, error) {
	reply, err := h.s.call(ctx, useHandle{Handle: h.id, Change: &ch, Empty: ch.Proclaim != nil && len(*ch.Proclaim) == 0}, nil)
	if err != nil {
		return driver.Grant{}, err
	}
	return h.s.grant(reply.(grantReply)), nil
}

func (s *stub) Inspect(ctx context.Context, r *driver.InspectRequest) (driver.InspectReply, error) {
	return ask[driver.InspectReply](ctx, s, *r)
}

func (s *stub) Force(ctx context.Context, r *driver.ForceRequest) (driver.ForceReply, error) {
	return ask[driver.ForceReply](ctx, s, *r)
}

func (s *stub) Resize(ctx context.Context, name string, limit int64) error {
	_, err := s.call(ctx, resize{name, limit}, nil)
	return err
}

func (s *stub) Delete(ctx context.Context, kind driver.ResourceKind, name string) error {
	_, err := s.call(ctx, remove{kind, name}, nil)
	return err
}

func (s *stub) OpenSession(ctx context.Context, spec driver.Spec) (*driver.Session, error) {
	r, err := ask[sessionReply](ctx, s, openSession{spec})
	if err != nil {
		return nil, err
	}
	return s.session(r.Session), nil
}

func (s *stub) KeepSession(ctx context.Context, l *driver.Session, ttl time.Duration) error {
	_, err := s.call(ctx, keepSession{l, ttl}, nil)
	return err
}

func (s *stub) EndSession(ctx context.Context, l *driver.Session) error {
	_, err := s.call(ctx, endSession{l}, nil)
	return err
}

func (s *stub) SessionInfo(ctx context.Context, r *driver.SessionInfoRequest) (driver.SessionInfo, error) {
	return ask[driver.SessionInfo](ctx, s, *r)
}

func (s *stub) Count(ctx context.Context, r *driver.CountRequest) (driver.CountReply, error) {
	return ask[driver.CountReply](ctx, s, *r)
}

func (s *stub) Reserve(ctx context.Context, r *driver.ReserveRequest) (driver.ReserveReply, error) {
	return ask[driver.ReserveReply](ctx, s, *r)
}

func (s *stub) CountDown(ctx context.Context, r *driver.CountDownRequest) (driver.CountDownReply, error) {
	return ask[driver.CountDownReply](ctx, s, *r)
}

func (s *stub) Limit(ctx context.Context, r *driver.LimitRequest) (driver.LimitReply, error) {
	return ask[driver.LimitReply](ctx, s, *r)
}

func (s *stub) Txn(ctx context.Context, r *driver.TxnRequest) (*driver.TxnReply, error) {
	reply, err := ask[driver.TxnReply](ctx, s, *r)
	return &reply, err
}

func (s *stub) Sweep(ctx context.Context, r *driver.SweepRequest) (driver.SweepReply, error) {
	return ask[driver.SweepReply](ctx, s, *r)
}

func (s *stub) Ping(ctx context.Context) error {
	_, err := s.call(ctx, ping{s.id}, nil)
	return err
}

func (s *stub) Close(ctx context.Context) error {
	_, err := s.call(ctx, closing{s.id}, nil)
	return err
}

// Watch yields what the process tells.
func (s *stub) Watch(ctx context.Context, r *driver.WatchRequest) iter.Seq2[driver.Event, error] {
	return func(yield func(driver.Event, error) bool) {
		watching, cancel := context.WithCancel(ctx)
		q := &eventQueue{more: make(chan struct{}, 1)}
		over := make(chan error, 1)
		go func() {
			_, err := s.call(watching, *r, func(body any) { q.put(body.(driver.Event)) })
			over <- err
		}()
		var err error
		for going := true; going; {
			select {
			case <-q.more:
			case err = <-over:
				going = false
			}
			for ev := range q.take() {
				if ctx.Err() != nil || !yield(ev, nil) {
					cancel()
					if going {
						<-over
					}
					return
				}
			}
		}
		cancel()
		if err != nil && ctx.Err() == nil {
			yield(driver.Event{}, err)
		}
	}
}

// eventQueue has room for every event, so that the teller never waits.
type eventQueue struct {
	mu     sync.Mutex
	events []driver.Event
	more   chan struct{}
}

func (q *eventQueue) put(ev driver.Event) {
	q.mu.Lock()
	q.events = append(q.events, ev)
	q.mu.Unlock()
	select {
	case q.more <- struct{}{}:
	default:
	}
}

func (q *eventQueue) take() iter.Seq[driver.Event] {
	q.mu.Lock()
	defer q.mu.Unlock()
	events := q.events
	q.events = nil
	return func(yield func(driver.Event) bool) {
		for _, ev := range events {
			if !yield(ev) {
				return
			}
		}
	}
}
