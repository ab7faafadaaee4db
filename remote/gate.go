package remote

import (
	"context"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"
)

const (
	// dialsAtOnce is how many Spaces of a process connect to one address at the same
	// time: as many as keep a node busy. Thousands that have lost it together would
	// otherwise each be so slow that none is in time.
	dialsAtOnce = 32
	// verdictHolds is how long nobody dials an address that could not be reached.
	verdictHolds = 50 * time.Millisecond
)

// dials are those of all Spaces of this process.
var dials gates

// gates are by address.
type gates struct {
	mu  sync.Mutex
	all map[string]*gate
}

// gate lets the Spaces of a process dial one address: some at a time, in the order
// in which they came. After it could not be reached only one at a time does, and what
// that one finds out holds for the others too. It is pure; gates lock it.
type gate struct {
	dialing int
	queue   []*dialTurn
	why     error     // it could not be reached; nil: it could
	until   time.Time // nobody dials
}

// dialTurn is the turn of one dial.
type dialTurn struct {
	come chan error // nil: it may; otherwise why nobody can
	// patient: it knows that the address could not be reached, and waits until it can.
	patient bool
}

// enter waits for the turn to dial an address; leave is to be called after it. An
// error is why nobody could reach the address just now, which is not told to the
// patient.
func (x *gates) enter(ctx context.Context, address string, patient bool) error {
	t := &dialTurn{make(chan error, 1), patient}
	x.mu.Lock()
	x.of(address).enter(time.Now(), t)
	x.mu.Unlock()
	select {
	case err := <-t.come:
		return err
	case <-ctx.Done():
		x.abandon(address, t)
		return ctx.Err()
	}
}

// of is the gate of an address; x is locked. Those that nobody needs any more go when
// there is a new one.
func (x *gates) of(address string) *gate {
	if g := x.all[address]; g != nil {
		return g
	}
	now, g := time.Now(), &gate{}
	all := map[string]*gate{address: g}
	for a, old := range x.all {
		if !old.idle(now) {
			all[a] = old
		}
	}
	x.all = all
	return g
}

// abandon gives up a turn that has perhaps come.
func (x *gates) abandon(address string, t *dialTurn) {
	x.mu.Lock()
	defer x.mu.Unlock()
	g := x.all[address]
	select {
	case err := <-t.come:
		if err == nil {
			g.leave(time.Now())
		}
	default:
		g.queue = slices.DeleteFunc(g.queue, func(o *dialTurn) bool { return o == t })
	}
}

// leave ends a turn. A why that is not nil says that the address could not be reached.
func (x *gates) leave(address string, why error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	g, now := x.all[address], time.Now()
	if why != nil {
		g.failed(now, why)
		time.AfterFunc(verdictHolds, func() { x.again(g) })
	}
	g.leave(now)
}

// again lets the next one try.
func (x *gates) again(g *gate) {
	x.mu.Lock()
	defer x.mu.Unlock()
	g.admit(time.Now())
}

// reached notes that there is somebody at the address. gRPC begins a handshake also when its dial was
// given up just then: the turn is over, and perhaps nobody needs the gate any more.
func (x *gates) reached(address string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if g := x.all[address]; g != nil {
		g.reached(time.Now())
	}
}

// enter answers now or later.
func (g *gate) enter(now time.Time, t *dialTurn) {
	if g.why != nil && now.Before(g.until) && !t.patient {
		t.come <- g.why
		return
	}
	g.queue = append(g.queue, t)
	g.admit(now)
}

// admit gives turns to those in front.
func (g *gate) admit(now time.Time) {
	most := dialsAtOnce
	switch {
	case g.why != nil && now.Before(g.until):
		return
	case g.why != nil:
		most = 1
	}
	for len(g.queue) > 0 && g.dialing < most {
		g.queue[0].come <- nil
		g.queue = g.queue[1:]
		g.dialing++
	}
}

func (g *gate) leave(now time.Time) {
	g.dialing--
	g.admit(now)
}

func (g *gate) reached(now time.Time) {
	g.why = nil
	g.admit(now)
}

// failed tells those that wait, but not the patient.
func (g *gate) failed(now time.Time, why error) {
	g.why, g.until = why, now.Add(verdictHolds)
	g.queue = slices.DeleteFunc(g.queue, func(t *dialTurn) bool {
		if !t.patient {
			t.come <- why
		}
		return !t.patient
	})
}

// idle: nobody would miss it.
func (g *gate) idle(now time.Time) bool {
	return g.dialing == 0 && len(g.queue) == 0 && !now.Before(g.until)
}

// reaching are credentials that tell when the address has been reached, which is
// before they are of use.
type reaching struct {
	credentials.TransportCredentials
	reached *atomic.Bool
	tell    func()
}

func (c *reaching) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if !c.reached.Swap(true) {
		c.tell()
	}
	return c.TransportCredentials.ClientHandshake(ctx, authority, raw)
}

// Clone is part of what credentials do.
func (c *reaching) Clone() credentials.TransportCredentials {
	return &reaching{c.TransportCredentials.Clone(), c.reached, c.tell}
}
