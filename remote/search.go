package remote

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/peer"

	"github.com/holdfast-io/holdfast/internal/session"
	"github.com/holdfast-io/holdfast/internal/wire"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

const (
	// headStart is how long a node may take to answer before another is asked as
	// well.
	headStart = 250 * time.Millisecond
	// linger is how long a node that does not lead, or is silent, is listened to
	// before its address is dialled anew: behind it there may be many nodes.
	linger = time.Second
	// longest is how long a silent one is listened to beside the next ones: an
	// answer that is on its way is worth more than another question.
	longest = 10 * linger
)

// search looks for the node that leads. Nodes are asked in the order of a route,
// and those that do not lead are listened to meanwhile: they tell when it is
// another that does, or they themselves. So nobody has to ask again and again
// while a new leader is elected.
type search struct {
	e      *engine
	route  *session.Route
	avoid  *serverLink // to a node that is not asked; nil: to none
	words  chan word
	scouts []*scout
	newest *scout   // the others are asked when it has answered, or not in time; nil: it has
	due    int64    // then, at the latest
	failed []string // endpoints that could not be asked
}

// scout asks one node.
type scout struct {
	endpoint string
	ctx      context.Context // ends with the search, or with the link that it has found
	cancel   context.CancelFunc
	taken    chan struct{} // closed when the link is the engine's
	patient  bool          // its endpoint could not be asked before
	asked    atomic.Int64  // when it was connected; 0: it is not yet
	follows  bool          // the node has said so
}

// word is what a scout has to tell.
type word struct {
	from *scout
	link *serverLink // the node leads
	hint string      // it does not, but perhaps this one does
	err  error       // why it does not, or cannot be asked any more
}

// errFollows is what a node has said that does not lead.
var errFollows = errors.New("the node does not lead")

// search finds the leader, unless ctx ends or a node refuses for good.
func (e *engine) search(ctx context.Context, route *session.Route, avoid *serverLink) (*serverLink, error) {
	s := &search{e: e, route: route, avoid: avoid, words: make(chan word)}
	defer s.dismiss()
	route.Set(e.nodes(avoid)...)
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case w := <-s.words:
			switch {
			case !slices.Contains(s.scouts, w.from): // another was sent there since
			case w.link != nil && !s.known(w.link):
				return s.take(w), nil
			case final(w.err) && e.given(w.from.endpoint):
				return nil, w.err
			default:
				s.hear(w)
			}
		case <-time.After(s.wait()):
			s.next()
		}
	}
}

// final: asking again would not help.
func final(err error) bool {
	why := wire.Error(err)
	return errors.Is(why, fs.ErrInvalid) || errors.Is(why, fs.ErrPermission)
}

// known: it is the node to be avoided, perhaps by another name. That it leads is
// nothing new, and answers on their way over the link that there is would be lost.
func (s *search) known(l *serverLink) bool {
	if s.avoid == nil {
		return false
	}
	a, _ := peer.FromContext(l.stream.Context())
	b, _ := peer.FromContext(s.avoid.stream.Context())
	return a != nil && b != nil && a.Addr.String() == b.Addr.String()
}

// take takes a link over from its scout.
func (s *search) take(w word) *serverLink {
	s.recall(func(x *scout) bool { return x == w.from })
	close(w.from.taken)
	return w.link
}

func (s *search) dismiss() {
	for _, x := range s.scouts {
		x.cancel()
	}
}

// wait is how long nothing has to be done if nobody has anything to tell.
func (s *search) wait() time.Duration {
	_, at := s.route.Dial()
	if s.newest != nil {
		at = s.due
	}
	return time.Duration(at - s.e.g.Now())
}

// next asks the next node that is not listened to already.
func (s *search) next() {
	now := s.e.g.Now()
	if s.newest != nil { // it takes too long
		s.newest = nil
		s.route.Failed(now)
		return
	}
	for range s.e.nodes(s.avoid) {
		endpoint, _ := s.route.Dial()
		if s.mayAsk(now, endpoint) {
			s.send(now, endpoint)
			return
		}
		s.route.Failed(now)
	}
}

// mayAsk: nobody asks there, or has for so long that another should as well, each
// time after twice as long. While one connects another would be no sooner there. A
// search that only doubts a link does not ask a follower twice.
func (s *search) mayAsk(now int64, endpoint string) bool {
	pause, last := int64(0), int64(0)
	for _, x := range s.scouts {
		switch {
		case x.endpoint != endpoint:
		case x.follows && s.avoid != nil, x.asked.Load() == 0:
			return false
		default:
			pause, last = max(int64(linger), 2*pause), x.asked.Load()
		}
	}
	return now >= last+pause
}

// send sends a scout. Those that were sent there before and know that the node does
// not lead, or have waited for too long, come back.
func (s *search) send(now int64, endpoint string) {
	old := func(x *scout) bool {
		return x.endpoint == endpoint && (x.follows || now >= x.asked.Load()+int64(longest))
	}
	for _, x := range s.scouts {
		if old(x) {
			x.cancel()
		}
	}
	s.recall(old)
	x := &scout{endpoint: endpoint, patient: slices.Contains(s.failed, endpoint), taken: make(chan struct{})}
	x.ctx, x.cancel = context.WithCancel(s.e.ctx)
	s.scouts = append(s.scouts, x)
	s.newest, s.due = x, now+int64(headStart)
	s.e.scouts.Go(func() { x.run(s.e, s.words) })
}

// recall listens to some no more.
func (s *search) recall(which func(*scout) bool) { s.scouts = slices.DeleteFunc(s.scouts, which) }

// asked: somebody is there.
func (s *search) asked(endpoint string) bool {
	return slices.ContainsFunc(s.scouts, func(x *scout) bool { return x.endpoint == endpoint })
}

// fail notes that an endpoint could not be asked.
func (s *search) fail(endpoint string) {
	if !slices.Contains(s.failed, endpoint) {
		s.failed = append(s.failed, endpoint)
	}
}

// learn remembers a node that another has named as the leader.
func (s *search) learn(endpoint string) {
	s.e.mu.Lock()
	s.e.learn(endpoint)
	s.e.mu.Unlock()
	s.route.Set(s.e.nodes(s.avoid)...)
}

// hear takes word that is not of a leader: where to ask next.
func (s *search) hear(w word) {
	x, now := w.from, s.e.g.Now()
	x.follows = errors.Is(w.err, errFollows)
	if w.err != nil {
		s.e.failed(fmt.Errorf("%s: %w", x.endpoint, w.err))
		if !x.follows {
			s.fail(x.endpoint)
			s.recall(func(o *scout) bool { return o == x })
		}
	}
	if w.hint != "" {
		s.learn(w.hint)
	}
	useful := w.hint != "" && !s.asked(w.hint) && (s.avoid == nil || s.avoid.endpoint != w.hint)
	switch {
	case useful && x == s.newest:
		s.route.Hint(now, w.hint)
	case useful:
		s.route.News(now, w.hint)
	case x == s.newest:
		s.route.Failed(now)
	default:
		return
	}
	s.newest = nil
}

// run asks until the node leads, or cannot be asked any more.
func (x *scout) run(e *engine, words chan<- word) {
	l, err := e.dial(x)
	if err == nil {
		x.asked.Store(e.g.Now())
		if err = x.ask(e, l, words); err == nil {
			return
		}
		defer l.end()
	}
	x.tell(words, word{from: x, err: err})
	x.cancel()
}

// ask asks until the link is taken.
func (x *scout) ask(e *engine, l *serverLink, words chan<- word) error {
	for {
		m, err := l.attach()
		if err == nil {
			err = e.vouch(l)
		}
		switch {
		case err != nil:
			return err
		case m.Kind == session.KindTable:
			x.tell(words, word{from: x, link: l})
			return x.handOver()
		}
		x.tell(words, word{from: x, hint: m.Endpoint, err: errFollows})
		if err := x.rest(l.number); err != nil {
			return err
		}
	}
}

// tell tells the search, if it lasts.
func (x *scout) tell(words chan<- word, w word) {
	select {
	case words <- w:
	case <-x.ctx.Done():
	}
}

// handOver waits until the link is the engine's; with an error, it is of no use.
func (x *scout) handOver() error {
	select {
	case <-x.taken:
		return nil
	case <-x.ctx.Done():
		return x.ctx.Err()
	}
}

// rest pauses before the node is asked again. At first it does not: then the node
// answers when it has news. But one that has news all the time is no help.
func (x *scout) rest(asked uint64) error {
	if asked == 1 {
		return nil
	}
	select {
	case <-time.After(headStart):
		return nil
	case <-x.ctx.Done():
		return x.ctx.Err()
	}
}

// attach asks the node whether it leads, by a session that there is not: a leader
// answers with an empty table, a follower refuses.
func (l *serverLink) attach() (m session.Message, err error) {
	l.number++
	ask := session.Message{Kind: session.KindAttach, Session: l.id, Stream: l.number}
	if err := l.stream.Send(&pb.Batch{Messages: session.AppendMessage(nil, &ask)}); err != nil {
		_, err = l.stream.Recv() // why
		return m, err
	}
	b, err := l.stream.Recv()
	if err != nil {
		return m, err
	}
	m, _, err = session.DecodeMessage(b.GetMessages())
	if err == nil && m.Kind != session.KindTable && m.Refusal != session.RefusedNoLeader {
		err = fmt.Errorf("the node answers an attach with %q", m.Text)
	}
	return m, err
}

// doubts looks for another leader whenever the link is doubted. If there is one,
// it is e.successor, and the link ends.
func (e *engine) doubts(l *serverLink) {
	for l.stream.Context().Err() == nil {
		select {
		case <-l.doubted:
		case <-l.stream.Context().Done():
			return
		}
		ctx, cancel := context.WithCancel(l.stream.Context())
		if wide, ok := l.doubting(cancel); ok {
			e.findSuccessor(ctx, l, wide)
		}
		cancel()
	}
}

// findSuccessor looks for a successor of a link that is doubted: on the other nodes or, wide,
// also on the same one, over another connection.
func (e *engine) findSuccessor(ctx context.Context, l *serverLink, wide bool) {
	avoid := l
	if wide {
		avoid = nil
	}
	nodes := e.nodes(avoid)
	if len(nodes) == 0 {
		return
	}
	l.ping()
	found, err := e.search(ctx, session.NewRoute(rand.Uint64(), nodes...), avoid)
	if err == nil {
		e.successor = found
	}
	if err == nil || wide && final(err) {
		l.cancel()
	}
}
