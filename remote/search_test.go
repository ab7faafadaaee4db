package remote_test

import (
	"context"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/node/api"
	"github.com/holdfast-io/holdfast/internal/session"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// follower is a node that does not lead. It names one as the leader at first, and
// on each stream others when it has news.
type follower struct {
	pb.UnimplementedSessionStreamServer
	names string
	news  chan string
	again chan int32    // gets the stream's number for each attach but its first
	left  chan struct{} // gets one for each stream that has ended
	begun atomic.Int32
}

func (f *follower) Attach(s grpc.BidiStreamingServer[pb.Batch, pb.Batch]) error {
	number := f.begun.Add(1)
	defer func() { f.left <- struct{}{} }()
	for hint := f.names; ; {
		b, err := s.Recv()
		if err != nil {
			return err
		}
		m, _, err := session.DecodeMessage(b.GetMessages())
		if err != nil {
			return err
		}
		if m.Stream > 1 {
			f.again <- number
			select {
			case hint = <-f.news:
			case <-s.Context().Done():
				return nil
			}
		}
		m.Kind, m.Refusal, m.Endpoint = session.KindRefused, session.RefusedNoLeader, hint
		if err := s.Send(&pb.Batch{Messages: session.AppendMessage(nil, &m)}); err != nil {
			return err
		}
	}
}

// newFollower serves one that names a leader.
func newFollower(t *testing.T, names string) (f *follower, addr string) {
	f = &follower{names: names, news: make(chan string), again: make(chan int32, 1000), left: make(chan struct{}, 1000)}
	g := grpc.NewServer()
	pb.RegisterSessionStreamServer(g, f)
	return f, listenFor(t, g)
}

// awaited waits until somebody listens to it over a stream of this number or a later
// one.
func (f *follower) awaited(t *testing.T, number int32) {
	t.Helper()
	for {
		select {
		case n := <-f.again:
			if n >= number {
				return
			}
		case <-time.After(time.Minute):
			t.Fatal("nobody else is asked")
		}
	}
}

// listenFor serves on one more address.
func listenFor(t *testing.T, g *grpc.Server) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = g.Serve(ln) }()
	t.Cleanup(g.Stop)
	return ln.Addr().String()
}

// nobody is an address at which nobody answers.
func nobody(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// tapped is a node whose streams of sessions can be held up.
type tapped struct {
	g       *grpc.Server
	streams chan *tappedStream // those that have begun
	// instead, if it is not nil, may serve a stream; false: it does not.
	instead func(s grpc.ServerStream) bool
	// deaf: it does not answer the next read.
	deaf atomic.Bool
}

// tappedStream is one of them.
type tappedStream struct {
	grpc.ServerStream
	mu       sync.Mutex
	held     chan struct{} // nil: nothing is held up
	loses    bool          // renewals do not arrive
	messages int
	told     chan struct{} // gets one for each batch to the client
}

func newTapped(t *testing.T) *tapped {
	x := &tapped{streams: make(chan *tappedStream, 1000)}
	svc := api.New(newNode(t))
	t.Cleanup(svc.Close)
	x.g = grpc.NewServer(grpc.StreamInterceptor(x.stream), grpc.UnaryInterceptor(x.call))
	svc.Register(x.g)
	return x
}

func (x *tapped) stream(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if info.FullMethod != pb.SessionStream_Attach_FullMethodName {
		return next(srv, s)
	}
	w := &tappedStream{ServerStream: s, told: make(chan struct{}, 1000)}
	x.streams <- w
	if x.instead != nil && x.instead(s) {
		return nil
	}
	return next(srv, w)
}

func (x *tapped) call(ctx context.Context, r any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if x.deaf.CompareAndSwap(true, false) {
		<-ctx.Done()
	}
	return next(ctx, r)
}

func (w *tappedStream) RecvMsg(m any) error {
	err := w.ServerStream.RecvMsg(m)
	w.mu.Lock()
	if err == nil {
		w.messages++
		err = w.lose(m.(*pb.Batch))
	}
	held := w.held
	w.mu.Unlock()
	if held != nil {
		select {
		case <-held:
		case <-w.Context().Done():
		}
	}
	return err
}

func (w *tappedStream) SendMsg(m any) error {
	defer func() { w.told <- struct{}{} }()
	return w.ServerStream.SendMsg(m)
}

// lose takes the renewals out of a batch, if they are lost, until the client asks for
// a sign of life; w is locked.
func (w *tappedStream) lose(b *pb.Batch) error {
	rest := b.GetMessages()
	for b.Messages = nil; len(rest) > 0; {
		m, after, err := session.DecodeMessage(rest)
		if err != nil {
			return err
		}
		rest = after
		w.loses = w.loses && m.Kind != session.KindAttach
		if !w.loses || m.Kind != session.KindRenewal {
			b.Messages = session.AppendMessage(b.Messages, &m)
		}
	}
	return nil
}

// hold holds up what the client sends until the function it returns is called.
func (w *tappedStream) hold() (release func()) {
	held := make(chan struct{})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held = held
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.held = nil
		close(held)
	}
}

func (w *tappedStream) received() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.messages
}

// lock takes a lock for as long as the test lasts, on a session that never loses its own patience.
func lock(t *testing.T, s *holdfast.Space, name string) {
	t.Helper()
	if err := <-begin(t, s, name); err != nil {
		t.Fatal(err)
	}
}

// begin is lock in the background; the error comes with the answer.
func begin(t *testing.T, s *holdfast.Space, name string) <-chan error {
	answer, kept := make(chan error, 1), new(*holdfast.Hold)
	t.Cleanup(func() { runtime.KeepAlive(kept) }) // a hold that nobody can reach is given back
	go func() {
		var err error
		*kept, err = s.Mutex(name, holdfast.TTL(24*time.Hour)).Acquire(t.Context())
		answer <- err
	}()
	return answer
}

func wait(t *testing.T, answer <-chan error) {
	t.Helper()
	select {
	case err := <-answer:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("no answer")
	}
}

func await(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(time.Minute):
		t.Fatal(what)
	}
}

// While a leader is silent others are asked, and the one that leads by then is used: a
// session with a long TTL would not give the stream up for hours.
func TestSilentLeader(t *testing.T) {
	x := newTapped(t)
	f, addr := newFollower(t, listenFor(t, x.g))
	next := listenFor(t, x.g)
	s := openAt(t, addr)
	lock(t, s, "a")
	defer (<-x.streams).hold()()
	answer := begin(t, s, "b")
	f.awaited(t, 2)
	f.news <- next
	wait(t, answer)
}

// The same for a client that only reads.
func TestSilentLeader_Read(t *testing.T) {
	x := newTapped(t)
	f, addr := newFollower(t, listenFor(t, x.g))
	next := listenFor(t, x.g)
	s := openAt(t, addr)
	first := <-x.streams
	await(t, "the leader is not found", first.told)
	defer first.hold()()
	x.deaf.Store(true)
	answer := make(chan error, 1)
	go func() {
		_, err := s.Inspect(t.Context(), "a")
		answer <- err
	}()
	f.awaited(t, 2)
	f.news <- next
	wait(t, answer)
}

// A leader that was only slow is not left: what it answers is heard, and the others
// are let go.
func TestSlowLeader(t *testing.T) {
	x := newTapped(t)
	f, addr := newFollower(t, listenFor(t, x.g))
	s := openAt(t, addr)
	lock(t, s, "a")
	await(t, "the follower is kept", f.left)
	release := (<-x.streams).hold()
	answer := begin(t, s, "b")
	f.awaited(t, 2)
	release()
	wait(t, answer)
	await(t, "the follower is kept", f.left)
	lock(t, s, "c")
	if n := len(x.streams); n > 0 {
		t.Errorf("%d more streams to the leader, want the first alone", n)
	}
}

// That a slow leader answers by another name is no reason to leave the stream on
// which its answers will come.
func TestSlowLeader_ByAnotherName(t *testing.T) {
	x := newTapped(t)
	leader := listenFor(t, x.g)
	f, addr := newFollower(t, leader)
	s := openAt(t, addr)
	lock(t, s, "a")
	first := <-x.streams
	release := first.hold()
	answer := begin(t, s, "b")
	f.awaited(t, 2)
	f.news <- strings.Replace(leader, "127.0.0.1", "localhost", 1)
	second := <-x.streams
	await(t, "the node does not answer", second.told)
	release()
	wait(t, answer)
	before := first.received()
	lock(t, s, "c")
	if first.received() == before || second.received() > 1 {
		t.Errorf("the first stream had %d messages and has %d, the second has %d: want that the first is used", before, first.received(), second.received())
	}
}

// A node that does not lead is listened to: it tells the leader as soon as it knows.
// A client that asked it anew instead would hear of the leader that is gone for ever.
func TestFollowerTellsOfTheNextLeader(t *testing.T) {
	x := newTapped(t)
	f, addr := newFollower(t, nobody(t))
	next := listenFor(t, x.g)
	s := openAt(t, addr)
	answer := begin(t, s, "a")
	f.awaited(t, 1)
	f.news <- next
	wait(t, answer)
}

// Behind one address there may be many nodes: the one that answers need not lead,
// and the leader that it names need not be one that can be reached.
func TestManyNodesBehindOneAddress(t *testing.T) {
	x := newTapped(t)
	f, _ := newFollower(t, nobody(t))
	var streams atomic.Int32
	x.instead = func(s grpc.ServerStream) bool {
		if streams.Add(1) > 2 {
			return false
		}
		_ = f.Attach(&grpc.GenericServerStream[pb.Batch, pb.Batch]{ServerStream: s})
		return true
	}
	wait(t, begin(t, openAt(t, listenFor(t, x.g)), "a"))
}

// Nodes behind one address may be silent for ever, and another one lead: it is
// asked beside the silent ones, whose answers may still be on their way. Had the
// first been let go when the second was asked, it knew when the third is.
func TestSilentNodeBehindOneAddress(t *testing.T) {
	x := newTapped(t)
	var streams atomic.Int32
	silent, looked := make(chan context.Context, 2), make(chan struct{})
	x.instead = func(s grpc.ServerStream) bool {
		if streams.Add(1) > 2 {
			<-looked // the leader ends the search, and all others with it
			return false
		}
		silent <- s.Context()
		<-s.Context().Done()
		return true
	}
	answer := begin(t, openAt(t, listenFor(t, x.g)), "a")
	first := <-silent
	for range 3 {
		<-x.streams
	}
	if first.Err() != nil {
		t.Error("the first node is not listened to any more when others are asked")
	}
	close(looked)
	wait(t, answer)
}

// keep opens a session and renews it in the background, after the stream that it is
// on was changed; the error comes with the answer.
func keep(t *testing.T, s *holdfast.Space, ttl time.Duration, change func()) <-chan error {
	t.Helper()
	ses, err := s.Session(t.Context(), holdfast.TTL(ttl), holdfast.ManualRenew())
	if err != nil {
		t.Fatal(err)
	}
	change()
	answer := make(chan error, 1)
	go func() { answer <- ses.Keep(t.Context()) }()
	return answer
}

// A session that cannot wait any longer does not give a stream up that answers:
// nobody else does here, and a slow disk would be as slow over another stream, where
// the answer on its way would be lost.
func TestSlowAnswer(t *testing.T) {
	x := newTapped(t)
	var streams atomic.Int32
	x.instead = func(s grpc.ServerStream) bool {
		if streams.Add(1) == 1 {
			return false
		}
		<-s.Context().Done()
		return true
	}
	s := openAt(t, listenFor(t, x.g))
	wait(t, keep(t, s, 12*time.Second, func() {
		first := <-x.streams
		first.mu.Lock()
		defer first.mu.Unlock()
		first.loses = true
	}))
}

// A leader that still leads may be silent since the link to it is broken: when it
// was in vain to ask the others, it is asked over another.
func TestBrokenLink(t *testing.T) {
	x := newTapped(t)
	_, addr := newFollower(t, listenFor(t, x.g))
	wait(t, keep(t, openAt(t, addr), 24*time.Second, func() { t.Cleanup((<-x.streams).hold()) }))
}
