package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io/fs"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/session"
)

// A lease is only a name for a session; internal/core/expire.go ends it.
//
// A lease is named by a number, its session by 16 bytes: 8 that stand for the
// namespace and say that it is a lease, and the number. So a lease can be told
// from a session that a client keeps over a stream, which cannot take it by
// attaching to it, and numbers of different namespaces never meet.
func sessionOf(ns string, number int64) core.SessionID {
	id := prefixOf(ns)
	binary.BigEndian.PutUint64(id[8:], uint64(number))
	return id
}

func prefixOf(ns string) (p core.SessionID) {
	sum := sha256.Sum256([]byte("holdfast lease " + ns))
	copy(p[:8], sum[:8])
	return session.Reserve(p)
}

// leaseOf is the number of a lease; false: the session is none of that
// namespace.
func leaseOf(ns string, id core.SessionID) (int64, bool) {
	p := prefixOf(ns)
	if [8]byte(id[:8]) != [8]byte(p[:8]) {
		return 0, false
	}
	return int64(binary.BigEndian.Uint64(id[8:])), true
}

// Numbers from holdLease up to below 2·holdLease are those of leases that a lock
// call opened for its hold alone: they end with it. All numbers made here are
// safe in JSON.
const holdLease = int64(1) << 52

func ofHold(number int64) bool { return number >= holdLease && number < 2*holdLease }

// newNumber makes the number of a lease. Numbers count up from a random one, so
// that those of two lives of a node do not meet.
func (g *Gateway) newNumber() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ids++
	return max(1, int64(g.ids%uint64(holdLease)))
}

// lease numbers the commands of one session that is kept by hand.
type lease struct {
	g      *Gateway
	ns     string
	number int64
	id     core.SessionID
	ttl    time.Duration
	// open is sent before every command; nil: the session is there.
	open *core.Command
	// keyed: it is made of an idempotency key, and its request is number one.
	keyed bool

	mu     sync.Mutex
	window uint64
	next   uint64
	unsure []uint64 // numbers with a result that is wanted, in order
	// orphans are claims that calls have left behind, here or at an earlier leader, in order:
	// every command of the lease has them cancelled before it, until that is answered.
	orphans []uint64
	// grants counts the claims of the lease that were granted to calls which had waited.
	grants uint64
	calls  int
	reign  uint64 // in which the lease was looked up
}

// keepLeases is how many leases are remembered between calls; one that is forgotten is
// looked up again.
const keepLeases = 10_000

// lease finds a lease that exists in the caller's namespace. Release it.
func (g *Gateway) lease(ctx context.Context, number int64) (*lease, error) {
	return g.leaseIn(ctx, callerOf(ctx).namespace, number)
}

// leaseIn is lease for a namespace.
func (g *Gateway) leaseIn(ctx context.Context, ns string, number int64) (*lease, error) {
	id := sessionOf(ns, number)
	if l := g.known(id, g.tenures.reignNow()); l != nil {
		return l, nil
	}
	info, ok, err := g.survey(ctx, id)
	if err != nil {
		return nil, err
	}
	if !ok || info.Namespace != ns {
		return nil, noLease(number)
	}
	return g.remember(g.takeOver(ns, number, &info)), nil
}

// used withdraws what waits on a lease and was left behind, without keeping its caller: a lease that
// is kept alive and not used otherwise would be granted what nobody waits for. Not so with a lease of one
// hold, which calls use side by side.
func (g *Gateway) used(ns string, number int64) {
	if ofHold(number) {
		return
	}
	if l := g.known(sessionOf(ns, number), g.tenures.reignNow()); l != nil {
		l.withdraw()
		g.release(l)
		return
	}
	g.later(func(ctx context.Context) {
		l, err := g.leaseIn(ctx, ns, number)
		if err != nil {
			return
		}
		l.withdraw() // what an earlier leader has left
		g.release(l)
	})
}

// survey tells about a session and all that it waits for, in as many looks as that
// takes.
func (g *Gateway) survey(ctx context.Context, id core.SessionID) (info core.SessionInfo, ok bool, err error) {
	for {
		var page core.SessionInfo
		err = g.look(ctx, func(m *core.Machine, _ int64) { page, ok = m.SessionPage(id, info.Next, 0) })
		page.Waits = append(info.Waits, page.Waits...)
		if info = page; err != nil || info.Next == (core.Cursor{}) {
			return info, ok, err
		}
	}
}

func noLease(number int64) error {
	return driver.Errorf("", "", fs.ErrNotExist, "there is no lease %d (any more): grant a new one", number)
}

// ranges is the last range of numbers that was begun in this process.
var ranges atomic.Uint64

// leastRange is how long a range is, and where the first begins: numbers below belong to the call
// that has opened the session.
const leastRange = 1 << 20

// newRange begins a range that no other take-over of this process has, above a number that
// another process may have used: two with the same numbers would get each other's results.
func newRange(above uint64) uint64 {
	for {
		last := ranges.Load()
		next := max(last, above/leastRange) + 1
		if ranges.CompareAndSwap(last, next) {
			return next * leastRange
		}
	}
}

// takeOver continues a session with commands that another node may have numbered:
// nothing was ever accepted beyond the window, so what comes after it is new; and
// of two that take over at the same time here, each has numbers of its own, and
// the machine refuses the lower ones.
func (g *Gateway) takeOver(ns string, number int64, info *core.SessionInfo) *lease {
	next := newRange(info.Mark + info.Window)
	l := &lease{g: g, ns: ns, number: number, id: info.ID, ttl: time.Duration(info.TTL), window: info.Window, next: next, reign: g.tenures.reignNow()}
	for i := range info.Waits {
		l.orphans = append(l.orphans, info.Waits[i].Seq)
	}
	slices.Sort(l.orphans)
	l.orphans = slices.Compact(l.orphans)
	return l
}

// newLease is a lease that begins with its first command.
func (g *Gateway) newLease(ns string, number int64, open core.Command) *lease {
	return &lease{g: g, ns: ns, number: number, id: sessionOf(ns, number), ttl: time.Duration(open.TTL), open: &open, window: 1024, next: 1}
}

// known is a lease that was looked up before. One of an earlier reign, in which others may have led
// since, is looked up again once no call uses it: what waits then waits for nobody.
func (g *Gateway) known(id core.SessionID, reign uint64) *lease {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.leases[id]
	if l != nil && l.calls == 0 && l.reign != reign {
		delete(g.leases, id)
		return nil
	}
	if l != nil {
		l.calls++
	}
	return l
}

// remember keeps a lease for the calls to come; if another call was faster, its
// is taken.
func (g *Gateway) remember(l *lease) *lease {
	if ofHold(l.number) {
		return l // its next use, if any, is its last
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if other := g.leases[l.id]; other != nil {
		other.calls++
		return other
	}
	if len(g.leases) >= max(keepLeases, g.sweepAt) {
		g.sweep()
	}
	l.calls++
	g.leases[l.id] = l
	return l
}

// sweep forgets the leases that nobody uses right now. The next one is when there are twice as
// many as are left: if all are in use, not every call looks at all of them.
func (g *Gateway) sweep() {
	for id, l := range g.leases {
		if l.calls == 0 {
			delete(g.leases, id)
		}
	}
	g.sweepAt = 2 * len(g.leases)
}

// release ends the use of a lease by a call.
func (g *Gateway) release(l *lease) {
	g.mu.Lock()
	defer g.mu.Unlock()
	l.calls--
}

// forget drops what is known of a lease, because it has ended or another leader
// has numbered its commands meanwhile.
func (g *Gateway) forget(l *lease) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.leases[l.id] == l {
		delete(g.leases, l.id)
	}
}

// plainTTL is how long a session of the gateway outlives its last command.
const plainTTL = time.Minute

// plainLease is the gateway's own session of a namespace. It is opened with
// every command, so that it need not be renewed, and its id is nobody else's.
func (g *Gateway) plainLease(ns string) *lease {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.plain[ns]
	if l == nil || l.full() {
		if len(g.plain) >= keepLeases {
			clear(g.plain)
		}
		g.ids++
		l = g.newLease(ns, int64(g.ids%uint64(holdLease)), core.Command{
			Op: core.OpOpen, Flags: core.Fleeting, Namespace: ns, TTL: int64(max(plainTTL, g.s.MinTTL())), Owner: "gateway",
		})
		sum := sha256.Sum256(l.id[:])
		l.id = session.Reserve(core.SessionID(sum[:16])) // no lease that anybody can name
		g.plain[ns] = l
	}
	return l
}

// full reports whether a lease has no numbers left until older calls end.
func (l *lease) full() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.next-l.mark() >= l.window
}

// mark is the lowest number with a result that is wanted; l is locked.
func (l *lease) mark() uint64 {
	if len(l.unsure) > 0 {
		return l.unsure[0]
	}
	return l.next
}

// errWindow: nothing was done.
var errWindow = errors.New("too many calls of this lease are under way")

func noRoom() error {
	return &driver.Error{Kind: driver.ErrUnavailable, Outcome: driver.NotDone, RetryAfter: 100 * time.Millisecond, Err: errWindow}
}

// numbered makes a frame of commands and of what has to go before them. The results of all
// of them are wanted: a frame that overtakes this one raises the mark over none of its numbers. Claims
// that were left are cancelled by every frame until one of them is answered, since none of the
// frames knows which comes first; the cancel of one claim takes no others along.
func (l *lease) numbered(commands []core.Command) (f core.Frame, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	orphans := l.orphans[:min(len(l.orphans), 64)]
	if len(commands) > 0 && commands[0].Op == core.OpCancel {
		orphans = nil
	}
	if need := uint64(len(commands) + len(orphans)); l.next+need-l.mark() > l.window {
		return f, noRoom()
	}
	f = core.Frame{Session: l.id, Mark: l.mark()}
	if l.open != nil {
		f.Commands = append(f.Commands, *l.open)
	}
	for _, seq := range orphans {
		f.Commands = append(f.Commands, core.Command{Op: core.OpCancel, Target: seq, Seq: l.nextNumber()})
	}
	for _, c := range commands {
		if c.Op != core.OpEnd {
			c.Seq = l.nextNumber()
		}
		f.Commands = append(f.Commands, c)
	}
	return f, nil
}

// nextNumber is the number of a command with a result that is wanted; l is locked.
func (l *lease) nextNumber() uint64 {
	l.unsure = append(l.unsure, l.next)
	l.next++
	return l.next - 1
}

// settle says that the results of numbers are not wanted any more.
func (l *lease) settle(seqs ...uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unsure = slices.DeleteFunc(l.unsure, func(n uint64) bool { return slices.Contains(seqs, n) })
}

// leave has the next use of the lease cancel a claim that no call waits for any more. One
// that was opened for the claim alone ends by itself.
func (l *lease) leave(seqs ...uint64) {
	l.settle(seqs...)
	if l.open != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.orphans = append(l.orphans, seqs...)
	slices.Sort(l.orphans)
	l.orphans = slices.Compact(l.orphans)
}

// left reports that a claim is still to be cancelled.
func (l *lease) left(seq uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Contains(l.orphans, seq)
}

// withdraw cancels what calls have left behind, beside its caller.
func (l *lease) withdraw() {
	if l.leftBehind() == 0 {
		return
	}
	l.g.later(func(ctx context.Context) {
		for n := l.leftBehind(); n > 0; {
			if _, _, err := l.run(ctx); err != nil || l.leftBehind() >= n {
				return // the next use does it
			}
			n = l.leftBehind()
		}
	})
}

func (l *lease) grantsNow() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.grants
}

func (l *lease) leftBehind() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.orphans)
}

// canceled says that a claim is not to be cancelled any more: it was taken back, or its owner has come
// for it.
func (l *lease) canceled(seq uint64) {
	l.settle(seq)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.orphans = slices.DeleteFunc(l.orphans, func(n uint64) bool { return n == seq })
}

// run sends commands and returns their results.
func (l *lease) run(ctx context.Context, commands ...core.Command) (core.Reply, []core.Result, error) {
	f, err := l.numbered(commands)
	if err != nil || len(f.Commands) == 0 { // another call has taken along all that was left
		return core.Reply{}, nil, err
	}
	reply, results, err := l.send(ctx, &f, len(commands))
	for i := range f.Commands {
		l.settle(f.Commands[i].Seq)
	}
	return reply, results, err
}

// runAlone is run for one command of a session that nobody else numbers: it has room
// as soon as the results of other calls are taken.
func (l *lease) runAlone(ctx context.Context, c core.Command) (core.Reply, core.Result, error) {
	reply, results, err := l.run(ctx, c)
	if err != nil {
		return reply, core.Result{}, err
	}
	if results[0].Code == core.CodeWindow {
		err = noRoom()
	}
	return reply, results[0], err
}

// send submits a frame and splits the results of its last n commands off. A
// refused Open refuses them all.
func (l *lease) send(ctx context.Context, f *core.Frame, n int) (core.Reply, []core.Result, error) {
	reply, err := l.g.submit(ctx, f)
	l.tookOut(f, n, &reply)
	if err != nil {
		return reply, nil, err
	}
	if first := &reply.Results[0]; f.Commands[0].Op == core.OpOpen && first.Code != core.CodeOK {
		if first.Code == core.CodeExists {
			return reply, nil, errOutOfStep
		}
		return reply, nil, refusal(first, reply.Now, nil)
	}
	results := reply.Results[len(reply.Results)-n:]
	if reply.Deadline == 0 || slices.ContainsFunc(results, outOfStep) || slices.ContainsFunc(reply.Results, forgotten) {
		l.g.forget(l)
	}
	return reply, results, nil
}

// tookOut settles the cancels that went before the last n commands of a frame. What was not
// answered, or was out of step, goes with the next frames too.
func (l *lease) tookOut(f *core.Frame, n int, reply *core.Reply) {
	for i := range f.Commands[:len(f.Commands)-n] {
		c := &f.Commands[i]
		if c.Op != core.OpCancel {
			continue
		}
		l.settle(c.Seq)
		if i < len(reply.Results) && !outOfStep(reply.Results[i]) {
			l.canceled(c.Target)
		}
	}
}

func forgotten(r core.Result) bool { return r.Code == core.CodeForgotten }

// outOfStep says that another leader has numbered the session's commands
// meanwhile; nothing was done.
func outOfStep(r core.Result) bool {
	return r.Code == core.CodeForgotten || r.Code == core.CodeWindow
}
