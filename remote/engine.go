package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/client"
	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/session"
	"github.com/holdfast-io/holdfast/internal/wire"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// dialPatience bounds how long it may take to connect to an endpoint.
const dialPatience = 2 * time.Second

// maxBatch is how many bytes a batch to the server has when the next is begun.
const maxBatch = 1 << 20

// electing is how long a node may say that it cannot answer before another is
// asked.
const electing = 100 * time.Millisecond

// engine is the connection of one Space: a stream for its sessions, calls for
// its reads.
type engine struct {
	cfg   Config
	g     *client.SessionMux
	ctx   context.Context // ends with the Space
	close context.CancelFunc
	done  chan struct{}

	mu    sync.Mutex
	link  *serverLink   // nil: there is none
	ready chan struct{} // closed when there is one
	hint  string        // where to go next
	told  []string      // nodes beside the endpoints that others have named as leaders, the newest last
	of    string        // the cluster that the endpoints are of; "": none has said so yet
	last  error         // why there is none
	over  error         // why there will be none any more; nil: there may be, or the Space is closed

	successor *serverLink    // to be used next; read when the link has ended
	scouts    sync.WaitGroup // of every search

	shares shares
}

var _ client.Engine = (*engine)(nil)

// serverLink is one connection to one node. Its stream is written to by one goroutine.
type serverLink struct {
	endpoint string
	conn     *grpc.ClientConn
	stream   grpc.BidiStreamingClient[pb.Batch, pb.Batch]
	cancel   context.CancelFunc
	wake     chan struct{}
	flush    atomic.Bool   // the sender will look at out without being woken
	doubted  chan struct{} // has one when the link is doubted

	mu     sync.Mutex
	out    [][]byte       // batches
	id     core.SessionID // of no session: it is attached to ask whether the node leads
	number uint64         // of its newest attach
	pinged bool           // it was attached to see whether the node answers
	pulse  pulse
	calm   context.CancelFunc // ends the search for another leader; nil: there is none
	wide   bool               // the link itself may be broken: all nodes are asked
}

func newEngine(cfg Config) *engine {
	e := &engine{cfg: cfg, done: make(chan struct{}), ready: make(chan struct{})}
	e.ctx, e.close = context.WithCancel(context.Background())
	e.ctx = metadata.AppendToOutgoingContext(e.ctx, wire.NamespaceMetadata(cfg.Namespace)...)
	e.g = client.NewGroup(e, client.Options{Down: true, Later: e.later, NoStream: e.whyNone, Merge: true, Namespace: cfg.Namespace})
	go e.run()
	return e
}

// run keeps a stream to the leader open until the Space closes.
func (e *engine) run() {
	defer close(e.done)
	defer e.scouts.Wait()
	defer e.closeSuccessor()
	route := session.NewRoute(rand.Uint64(), e.cfg.Endpoints...)
	for {
		l, err := e.leader(route)
		if err != nil {
			e.fail(err)
			return
		}
		err = e.serve(l)
		e.g.Disconnect()
		l.end()
		if final(err) && e.given(l.endpoint) {
			e.fail(wire.Error(err))
			return
		}
		e.lost(route, err)
	}
}

// fail ends the Space because of err: also reads and watches that wait for a link, since
// there will be none.
func (e *engine) fail(err error) {
	e.mu.Lock()
	if e.ctx.Err() == nil {
		e.over = err
	}
	e.mu.Unlock()
	e.g.Fail(err)
	e.close()
}

// stopped is the error of a call after its context, or the Space, has ended; cause is what
// the call met. The end of the Space is told first: it ends the contexts of shares too.
func (e *engine) stopped(ctx context.Context, o driver.Outcome, cause error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ctx.Err() != nil {
		return &driver.Error{Kind: driver.ErrClosed, Outcome: o, Err: cmp.Or(e.over, cause)}
	}
	return &driver.Error{Kind: ctx.Err(), Outcome: o, Err: cause}
}

// leader is a link to the node that leads: the one that was found while
// the last one was doubted, or the one that a search finds.
func (e *engine) leader(route *session.Route) (*serverLink, error) {
	if l := e.successor; l != nil {
		e.successor = nil
		route.Worked()
		return l, nil
	}
	l, err := e.search(e.ctx, route, nil)
	switch {
	case e.ctx.Err() != nil:
		if l != nil {
			l.end()
		}
		return nil, errors.New("the Space is closed")
	case err != nil:
		return nil, wire.Error(err)
	}
	route.Worked()
	return l, nil
}

// closeSuccessor ends a link that nobody will use.
func (e *engine) closeSuccessor() {
	if e.successor != nil {
		e.successor.end()
	}
}

// noLink is why there is no link; nil: there is no reason yet.
func (e *engine) noLink() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.last
}

// whyNone is noLink while there is none.
func (e *engine) whyNone() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.link != nil {
		return nil
	}
	return e.last
}

// failed notes why there is no link.
func (e *engine) failed(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.last = err
}

// lost goes on to the next endpoint.
func (e *engine) lost(route *session.Route, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.link != nil {
		e.link, e.ready = nil, make(chan struct{})
	}
	e.last = err
	if e.hint != "" {
		e.learn(e.hint)
		route.Hint(e.g.Now(), e.hint)
		e.hint = ""
		return
	}
	route.Failed(e.g.Now())
}

// maxTold is how many nodes are remembered beside the endpoints: more than a group has, as a rule.
const maxTold = 8

// learn remembers a node that was named as the leader: when all endpoints are gone, those that
// led know which node leads. e is locked.
func (e *engine) learn(endpoint string) {
	if e.given(endpoint) {
		return
	}
	e.told = append(slices.DeleteFunc(e.told, func(x string) bool { return x == endpoint }), endpoint)
	if len(e.told) > maxTold {
		e.told = slices.Delete(e.told, 0, 1)
	}
}

// given: the endpoint is one of the caller's own, not one that another node has named, where
// anything may be by now.
func (e *engine) given(endpoint string) bool { return slices.Contains(e.cfg.Endpoints, endpoint) }

// vouch refuses a node that was named by another, at an address where one of another cluster is
// by now. The endpoints say which cluster is meant.
func (e *engine) vouch(l *serverLink) error {
	md, err := l.stream.Header()
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch cluster := wire.ClusterOf(md); {
	case cluster == "": // it is older than that
	case e.given(l.endpoint):
		e.of = cluster
	case e.of != "" && e.of != cluster:
		return fmt.Errorf("it is of the cluster %s, and not of %s, as the endpoints are: another node has named it as the leader", cluster, e.of)
	}
	return nil
}

// nodes are the endpoints, and what is remembered beside them, but that of a link; nil: of none.
func (e *engine) nodes(but *serverLink) []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := slices.Concat(e.cfg.Endpoints, e.told)
	if but != nil {
		all = slices.DeleteFunc(all, func(x string) bool { return x == but.endpoint })
	}
	return all
}

// dial opens a stream to a scout's endpoint when it is its turn; it ends with the
// scout's context.
func (e *engine) dial(x *scout) (l *serverLink, err error) {
	if err := dials.enter(x.ctx, x.endpoint, x.patient); err != nil {
		return nil, err
	}
	var reached atomic.Bool
	defer func() {
		if reached.Load() || x.ctx.Err() != nil {
			dials.leave(x.endpoint, nil)
		} else {
			dials.leave(x.endpoint, err)
		}
	}()
	creds := insecure.NewCredentials()
	if e.cfg.TLS != nil {
		creds = credentials.NewTLS(e.cfg.TLS)
	}
	return e.connect(x, &reaching{creds, &reached, func() { dials.reached(x.endpoint) }})
}

// A link on which nothing was heard for pingAfter, the shortest that gRPC takes, is pinged, and
// given up after pingPatience: a Space that only watches sends nothing else by which it would
// notice that its node is gone.
const (
	pingAfter    = 10 * time.Second
	pingPatience = 10 * time.Second
)

// connect is dial without waiting.
func (e *engine) connect(x *scout, creds credentials.TransportCredentials) (*serverLink, error) {
	opts := []grpc.DialOption{grpc.WithTransportCredentials(creds), grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingAfter, Timeout: pingPatience}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32)), grpc.WithInitialWindowSize(1 << 20), grpc.WithInitialConnWindowSize(4 << 20)}
	if d := e.cfg.host.Dialer(); d != nil {
		opts = append(opts, grpc.WithContextDialer(d))
	}
	conn, err := grpc.NewClient("passthrough:///"+x.endpoint, opts...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(x.ctx)
	late := time.AfterFunc(dialPatience, cancel)
	stream, err := pb.NewSessionStreamClient(conn).Attach(ctx)
	if err != nil {
		late.Stop()
		cancel()
		return nil, errors.Join(err, conn.Close())
	}
	if !late.Stop() {
		return nil, errors.Join(errors.New(x.endpoint+" does not answer"), conn.Close())
	}
	return &serverLink{
		endpoint: x.endpoint, conn: conn, stream: stream, cancel: x.cancel, // which ends ctx
		wake: make(chan struct{}, 1), doubted: make(chan struct{}, 1),
		id: session.NewID(rand.Uint64(), rand.Uint64()),
	}, nil
}

// serve lets the sessions use the link until it breaks.
func (e *engine) serve(l *serverLink) error {
	l.pulse = newPulse(e.g.Now())
	var helpers sync.WaitGroup
	helpers.Go(func() { l.send(e.g) })
	helpers.Go(func() { e.doubts(l) })
	defer helpers.Wait()
	defer l.cancel()
	e.mu.Lock()
	e.link = l
	close(e.ready)
	e.mu.Unlock()
	e.g.Connect()
	for {
		b, err := l.stream.Recv()
		if err != nil {
			return err
		}
		l.alive(e.g.Now())
		if err := e.g.Receive(b.GetMessages()); err != nil {
			return err
		}
	}
}

// send writes what there is: what is asked for while it writes travels together
// in the next batch.
func (l *serverLink) send(g *client.SessionMux) {
	var batch pb.Batch
	for {
		select {
		case <-l.wake:
		case <-l.stream.Context().Done():
			return
		}
		runtime.Gosched() // callers that were answered together ask together
		l.flush.Store(true)
		g.Flush()
		l.flush.Store(false)
		for _, batch.Messages = range l.take(g) {
			if l.stream.Send(&batch) != nil {
				return
			}
		}
	}
}

// add appends a message to the last batch, or begins one.
func (l *serverLink) add(m *session.Message) {
	if n := len(l.out); n > 0 && len(l.out[n-1]) < maxBatch {
		l.out[n-1] = session.AppendMessage(l.out[n-1], m)
		return
	}
	l.out = append(l.out, session.AppendMessage(nil, m))
}

func (l *serverLink) end() {
	l.cancel()
	_ = l.conn.Close()
}

// Carry hands messages to the link; without one they are sent again later.
func (e *engine) Carry(_ int64, sends []client.Outgoing) {
	e.mu.Lock()
	l := e.link
	e.mu.Unlock()
	if l == nil {
		return
	}
	l.mu.Lock()
	for i := range sends {
		l.add(&sends[i].Message)
	}
	l.mu.Unlock()
	if !l.flush.Load() {
		l.signal()
	}
}

func (l *serverLink) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// later has the sender fetch what was asked for; false: there is no link.
func (e *engine) later() bool {
	e.mu.Lock()
	l := e.link
	e.mu.Unlock()
	if l != nil {
		l.signal()
	}
	return l != nil
}

// Redial gives the link up for another endpoint.
func (e *engine) Redial(endpoint string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.link != nil {
		e.hint = endpoint
		e.link.cancel()
	}
}

// leave gives up a link that is of no use, unless there is another by now.
func (e *engine) leave(l *serverLink) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.link == l {
		e.hint = ""
		l.cancel()
	}
}

// Silent has all nodes asked whether they lead, over new links. The one that there is may
// still answer, and is left only for another.
func (e *engine) Silent() {
	e.mu.Lock()
	l := e.link
	e.mu.Unlock()
	if l != nil {
		l.suspect()
	}
}

// Forget has nothing to forget.
func (e *engine) Forget(core.SessionID) {}

// Left is told when the Space has closed.
func (e *engine) Left() {
	e.close()
	<-e.done
	e.shares.close()
}

// current is the connection, waited for if need be.
func (e *engine) current(ctx context.Context) (*serverLink, error) {
	for {
		e.mu.Lock()
		l, ready := e.link, e.ready
		e.mu.Unlock()
		if l != nil {
			return l, nil
		}
		select {
		case <-ready:
			continue
		case <-ctx.Done():
		case <-e.ctx.Done():
		}
		return nil, e.stopped(ctx, driver.NotDone, e.noLink())
	}
}

// pingLate has a link pinged when a call over it takes long, if there is another
// node that might lead; done is called when the call is over.
func (e *engine) pingLate(l *serverLink) (done func() bool) {
	if len(e.nodes(l)) == 0 {
		return func() bool { return false }
	}
	return time.AfterFunc(firstPatience/2, l.ping).Stop
}

// call runs a read on the leader, and again if that fails, elsewhere or after the
// pause that an overloaded node asks for: a read may be repeated.
func (e *engine) call(ctx context.Context, f func(ctx context.Context, c *grpc.ClientConn) error) error {
	return e.callFor(ctx, math.MaxInt64, f)
}

// callFor is call, but an overloaded node is not asked again after so long.
func (e *engine) callFor(ctx context.Context, most time.Duration, f func(ctx context.Context, c *grpc.ClientConn) error) error {
	began := time.Now()
	if md, ok := metadata.FromOutgoingContext(e.ctx); ok {
		of, _ := metadata.FromOutgoingContext(ctx) // the caller's trace travels along
		ctx = metadata.NewOutgoingContext(ctx, metadata.Join(md, of))
	}
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		l, err := e.current(ctx)
		if err != nil {
			return err
		}
		done := e.pingLate(l)
		err = answered(f(ctx, l.conn))
		done()
		if ctx.Err() != nil || err != nil && e.ctx.Err() != nil {
			return e.stopped(ctx, driver.Unknown, err)
		}
		wait := busyFor(err)
		switch {
		case wait > 0 && wait > most-time.Since(began):
			return err
		case wait > 0: // another node would only ask the same leader
			wait += rand.N(wait/2 + 1) // not all at once
		case !elsewhere(err):
			return err
		case pause > electing:
			e.leave(l)
		}
		select {
		case <-time.After(max(wait, pause)):
			continue
		case <-ctx.Done():
		case <-e.ctx.Done():
		}
		return e.stopped(ctx, driver.NotDone, err)
	}
}

// answered is what a node has answered. One that stops says that it is closed: to a Space, which is not, and asks the
// next, it is unavailable.
func answered(err error) error {
	err = wire.Error(err)
	if e, ok := errors.AsType[*driver.Error](err); ok && e.Kind == driver.ErrClosed {
		e.Kind = driver.ErrUnavailable
	}
	return err
}

// elsewhere: another node, or the same later, may have an answer. Canceled is a call over a link
// that was given up.
func elsewhere(err error) bool {
	return errors.Is(err, driver.ErrUnavailable) || errors.Is(err, context.Canceled)
}

// busyFor is when an overloaded node wants to be asked again; 0: it is not that.
// Unavailable is another matter, whatever time it names: the node may not lead, and
// another has to be asked.
func busyFor(err error) time.Duration {
	e, ok := errors.AsType[*driver.Error](err)
	if !ok || e.Kind != driver.ErrExhausted {
		return 0
	}
	return e.RetryAfter
}
