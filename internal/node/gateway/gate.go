package gateway

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/node/admission"
)

// gate bounds the calls under way: those that work, and those that stay for long,
// because they wait for a hold, watch, or carry sessions. Of the latter one connection
// may have only so many: HTTP/2 has an end to what one carries at once, and a client that
// comes then waits without a word, be it a release.
type gate struct {
	mu         sync.Mutex
	work, stay admission.Room
	streams    int         // that one connection may have
	conns      map[any]int // that stay, by connection
}

// spareStreams are for streams that keep sessions, on a connection that has no place
// for anything else.
const spareStreams = 256

func (g *gate) limit(calls, stays, streams int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.work.Limit, g.stay.Limit, g.streams = calls, stays, streams
	g.conns = map[any]int{}
}

// enter takes a call in; leave has to be called when it ends.
func (g *gate) enter(c admission.Class) (leave func(), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if wait, ok := g.work.Takes(c); !ok {
		return nil, busy(&g.work, "--max-calls", wait)
	}
	g.work.Used++
	return g.locked(func() { g.work.Used-- }), nil
}

// settle takes a call in that will stay.
func (g *gate) settle(ctx context.Context, c admission.Class) (leave func(), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	conn, err := g.stays(ctx, c)
	if err != nil {
		return nil, err
	}
	g.stay.Used++
	return g.locked(func() {
		g.stay.Used--
		g.unbind(conn)
	}), nil
}

// rest turns a call that works into one that waits for a hold; resume has to be
// called when it works again.
func (g *gate) rest(ctx context.Context) (resume func(), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	conn, err := g.stays(ctx, admission.Grant)
	if err != nil {
		return nil, err
	}
	g.move(-1)
	return g.locked(func() {
		g.move(1)
		g.unbind(conn)
	}), nil
}

// locked is f, with g locked.
func (g *gate) locked(f func()) func() {
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		f()
	}
}

// stays finds room for a call that will stay, and binds it to its connection.
func (g *gate) stays(ctx context.Context, c admission.Class) (any, error) {
	if wait, ok := g.stay.Takes(c); !ok {
		return nil, busy(&g.stay, "--max-waits", wait)
	}
	crowded := callerOf(ctx).crowded
	if crowded > 0 {
		return nil, crowdedError(crowded)
	}
	conn, crowded := g.bind(ctx, c)
	if crowded > 0 {
		return nil, crowdedError(crowded)
	}
	return conn, nil
}

func crowdedError(n int) error {
	return driver.Errorf("call", "", driver.ErrExhausted,
		"this connection has %d watches, streams and calls that wait, as many as one may: end some, open another connection, or let one have more (serve --max-streams)", n)
}

// bind counts a call that will stay for its connection; nil: that has no others, or no
// place left beside those that crowd it.
func (g *gate) bind(ctx context.Context, c admission.Class) (conn any, crowded int) {
	if conn = callerOf(ctx).conn; conn == nil {
		return nil, 0
	}
	most := g.streams
	if c == admission.Keep {
		most += spareStreams
	}
	if n := g.conns[conn]; n >= most {
		return nil, n
	}
	g.conns[conn]++
	return conn, 0
}

func (g *gate) unbind(conn any) {
	if conn == nil {
		return
	}
	if g.conns[conn]--; g.conns[conn] == 0 {
		delete(g.conns, conn)
	}
}

// away counts a call that the leader is asked for among those that wait, since only
// the leader knows whether it does; while there is room, else it goes on working
// here. One that may wait takes a place on its connection; crowded is how many are
// there if none is left, for the leader to refuse the call if it has to wait. back has
// to be called with the answer.
func (g *gate) away(ctx context.Context, c admission.Class, mayWait bool) (crowded int, back func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c != admission.Grant {
		return 0, func() {}
	}
	var conn any
	if mayWait {
		conn, crowded = g.bind(ctx, c)
	}
	_, room := g.stay.Takes(c)
	if room {
		g.move(-1)
	}
	return crowded, g.locked(func() {
		if room {
			g.move(1)
		}
		g.unbind(conn)
	})
}

func (g *gate) move(n int) {
	g.work.Used += n
	g.stay.Used -= n
}

// busy is the error of a call that finds no room.
func busy(r *admission.Room, flag string, wait time.Duration) error {
	e := driver.Errorf("call", "", driver.ErrExhausted,
		"the node has %d such calls under way and takes no more of this kind: try again in %s, or let it take more than %d (serve %s)", r.Used, wait, r.Limit, flag)
	e.RetryAfter = wait
	return e
}
