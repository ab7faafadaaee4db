package filehold_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/filehold"
)

func init() {
	roles["host"] = func(string) error { return newHost(newWire(os.Stdin, os.Stdout)).run() }
}

// host is a process that has drivers for stubs elsewhere.
type host struct {
	w      *wire
	mu     sync.Mutex
	rooms  map[uint64]*room
	cancel map[uint64]context.CancelFunc // by call
	work   sync.WaitGroup
}

// room is one driver with what it has given out.
type room struct {
	h        *host
	id       uint64
	d        driver.Driver
	mu       sync.Mutex
	handles  map[uint64]driver.Handle
	sessions map[driver.SessionID]*driver.Session
}

func newHost(w *wire) *host {
	return &host{w: w, rooms: map[uint64]*room{}, cancel: map[uint64]context.CancelFunc{}}
}

// run does what it is told until nobody is there any more.
func (h *host) run() error {
	for {
		p, err := h.w.receive()
		if errors.Is(err, io.EOF) {
			h.work.Wait()
			return nil
		}
		if err != nil {
			return err
		}
		if c, ok := p.Body.(cancelCall); ok {
			h.stop(c.Call)
			continue
		}
		ctx, cancel := context.WithCancel(context.Background())
		h.mu.Lock()
		h.cancel[p.Call] = cancel
		h.mu.Unlock()
		if p.Over {
			cancel()
		}
		h.work.Go(func() { h.answer(ctx, p) })
	}
}

// stop ends the context of a call, which may be over.
func (h *host) stop(call uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if cancel := h.cancel[call]; cancel != nil {
		cancel()
		delete(h.cancel, call)
	}
}

func (h *host) answer(ctx context.Context, p *packet) {
	defer h.stop(p.Call)
	body, err := h.do(ctx, p)
	if err != nil {
		body = nil
	}
	h.tell(&packet{Space: p.Space, Call: p.Call, Body: body, Last: true, Err: packed(err)})
}

// tell sends a packet; without anybody to hear it there is nothing left to do.
func (h *host) tell(p *packet) {
	if err := h.w.send(p); err != nil {
		os.Exit(2)
	}
}

func (h *host) do(ctx context.Context, p *packet) (any, error) {
	if o, ok := p.Body.(openSpace); ok {
		return h.open(p.Space, o.Dir)
	}
	h.mu.Lock()
	r := h.rooms[p.Space]
	h.mu.Unlock()
	note := func(body any) { h.tell(&packet{Space: p.Space, Call: p.Call, Body: body}) }
	switch b := p.Body.(type) {
	case driver.Request:
		return r.acquire(ctx, &b, note)
	case useHandle:
		return r.use(ctx, b)
	case driver.WatchRequest:
		return r.watch(ctx, &b, note)
	case openSession:
		l, err := r.d.OpenSession(ctx, b.Spec)
		if err != nil {
			return nil, err
		}
		r.keep(l)
		return sessionReply{l}, nil
	case keepSession:
		return nothing{}, r.d.KeepSession(ctx, r.session(b.Session), b.TTL)
	case endSession:
		return nothing{}, r.d.EndSession(ctx, r.session(b.Session))
	case driver.TxnRequest:
		return r.txn(ctx, &b)
	}
	return r.plain(ctx, p.Body)
}

// plain does what needs nothing of ours.
func (r *room) plain(ctx context.Context, body any) (any, error) {
	switch b := body.(type) {
	case driver.InspectRequest:
		return r.d.Inspect(ctx, &b)
	case driver.ForceRequest:
		return r.d.Force(ctx, &b)
	case resize:
		return nothing{}, r.d.Resize(ctx, b.Name, b.Limit)
	case remove:
		return nothing{}, r.d.Delete(ctx, b.Kind, b.Name)
	case driver.SessionInfoRequest:
		return r.d.SessionInfo(ctx, &b)
	case driver.CountRequest:
		return r.d.Count(ctx, &b)
	case driver.SweepRequest:
		return r.d.Sweep(ctx, &b)
	case driver.ReserveRequest:
		return r.d.Reserve(ctx, &b)
	case driver.CountDownRequest:
		return r.d.CountDown(ctx, &b)
	case driver.LimitRequest:
		return r.d.Limit(ctx, &b)
	case ping:
		return nothing{}, r.d.Ping(ctx)
	case closing:
		return nothing{}, r.d.Close(ctx)
	}
	return nil, errors.New("the host does not know this call")
}

func (h *host) open(id uint64, dir string) (any, error) {
	d, err := filehold.NewWith(dir, func(s *filehold.Seams) {
		s.Fallback = time.Hour
		if mode, err := strconv.ParseUint(os.Getenv("FILEHOLD_MODE"), 8, 32); err == nil {
			s.Perm = fs.FileMode(mode)
		}
	})
	if err != nil {
		return nil, err
	}
	d.OnFault(func(op, name string, err error) { h.tell(&packet{Space: id, Body: faultTold{op, name, packed(err)}}) })
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rooms[id] = &room{h: h, id: id, d: d, handles: map[uint64]driver.Handle{}, sessions: map[driver.SessionID]*driver.Session{}}
	return d.Info(), nil
}

// keep has the stub told of the session's end, before anything that comes after.
func (r *room) keep(l *driver.Session) {
	r.mu.Lock()
	known := r.sessions[l.ID] != nil
	r.sessions[l.ID] = l
	r.mu.Unlock()
	if !known {
		new(driver.Tie).To(l, func(why error) { r.h.tell(&packet{Space: r.id, Body: sessionEnded{l, packed(why)}}) })
	}
}

// session is this side of a session; one that is not the driver's stays as it came.
func (r *room) session(l *driver.Session) *driver.Session {
	if l == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if mine := r.sessions[l.ID]; mine != nil {
		return mine
	}
	return driver.NewSession(l.ID, l.Spec)
}

func (r *room) acquire(ctx context.Context, q *driver.Request, note func(any)) (any, error) {
	q.Session = r.session(q.Session)
	q.Waiting = func(position int) { note(queuedAt{position}) }
	q.Lost = func(error) {} // nothing ends a hold alone here
	g, err := r.d.Acquire(ctx, q)
	if err != nil {
		return nil, err
	}
	return r.grant(g), nil
}

func (r *room) grant(g driver.Grant) grantReply {
	r.keep(g.Session)
	r.mu.Lock()
	id := uint64(len(r.handles) + 1)
	r.handles[id] = g.Handle
	r.mu.Unlock()
	g.Handle = nil
	return grantReply{g, id}
}

func (r *room) use(ctx context.Context, u useHandle) (any, error) {
	r.mu.Lock()
	handle := r.handles[u.Handle]
	r.mu.Unlock()
	if u.Change == nil {
		return nothing{}, handle.Release(ctx)
	}
	if u.Empty {
		u.Change.Proclaim = new([]byte)
	}
	g, err := handle.Change(ctx, *u.Change)
	if err != nil {
		return nil, err
	}
	return r.grant(g), nil
}

func (r *room) txn(ctx context.Context, q *driver.TxnRequest) (any, error) {
	for _, ops := range [][]driver.Op{q.Then, q.Else} {
		for i := range ops {
			ops[i].Session = r.session(ops[i].Session)
		}
	}
	reply, err := r.d.Txn(ctx, q)
	if err != nil {
		return nil, err
	}
	return *reply, nil
}

func (r *room) watch(ctx context.Context, q *driver.WatchRequest, note func(any)) (any, error) {
	for ev, err := range r.d.Watch(ctx, q) {
		if err != nil {
			return nil, err
		}
		note(ev)
	}
	return nothing{}, nil
}
