package remote

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/internal/wire"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
	"github.com/holdfast-io/holdfast/session"
)

const (
	// headStart is how long a node may take to answer before another is asked as
	// well.
	headStart = 250 * time.Millisecond
	// linger is how long a node that does not lead is listened to before it is
	// dialled anew: behind one address there may be many nodes.
	linger = time.Second
)

// search looks for the node that leads. Nodes are asked in the order of a route,
// and those that do not lead are listened to meanwhile: they tell when it is
// another that does, or they themselves. So nobody has to ask again and again
// while a new leader is elected.
type search struct {
	e      *engine
	route  *session.Route
	avoid  string // is not asked
	words  chan word
	scouts map[string]*scout
	newest *scout // the others are asked when it has answered, or not in time; nil: it has
	due    int64  // then, at the latest
}

// scout asks one node.
type scout struct {
	endpoint string
	ctx      context.Context // ends with the search, or with the link that was found
	cancel   context.CancelFunc
	began    int64
	refused  bool // the node has said that it does not lead
}

// word is what a scout has to tell.
type word struct {
	from *scout
	link *link  // it leads
	hint string // it does not, but perhaps this one does
	err  error  // why it does not, or does not answer
}

// search finds the leader, unless ctx ends or a node refuses for good.
func (e *engine) search(ctx context.Context, route *session.Route, avoid string) (*link, error) {
	s := &search{e: e, route: route, avoid: avoid, words: make(chan word), scouts: map[string]*scout{}}
	defer s.dismiss()
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case w := <-s.words:
			if w.link != nil || w.final() {
				delete(s.scouts, w.from.endpoint)
				return w.link, w.err
			}
			s.hear(w)
		case <-time.After(s.wait()):
			s.next()
		}
	}
}

// final: asking again would not help.
func (w *word) final() bool {
	why := wire.Error(w.err)
	return errors.Is(why, fs.ErrInvalid) || errors.Is(why, fs.ErrPermission)
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

// next asks the next node, unless it is listened to already.
func (s *search) next() {
	now := s.e.g.Now()
	if s.newest != nil { // it took too long
		s.newest = nil
		s.route.Failed(now)
		return
	}
	endpoint, _ := s.route.Dial()
	if old := s.scouts[endpoint]; endpoint == s.avoid || old != nil && now < old.began+old.stay() {
		s.route.Failed(now)
		return
	}
	s.send(now, endpoint)
}

// stay is how long one is listened to. An answer that is on its way is worth more
// than asking anew.
func (x *scout) stay() int64 {
	if x.refused {
		return int64(linger)
	}
	return int64(10 * linger)
}

// send sends a scout.
func (s *search) send(now int64, endpoint string) {
	if old := s.scouts[endpoint]; old != nil {
		old.cancel()
	}
	x := &scout{endpoint: endpoint, began: now}
	x.ctx, x.cancel = context.WithCancel(s.e.ctx)
	s.scouts[endpoint], s.newest, s.due = x, x, now+int64(headStart)
	s.e.scouts.Go(func() { x.run(s.e, s.words) })
}

// hear takes the word of a node that does not lead, or not yet.
func (s *search) hear(w word) {
	x := w.from
	if s.scouts[x.endpoint] != x {
		return // it was replaced
	}
	s.e.failed(fmt.Errorf("%s: %w", x.endpoint, w.err))
	if x.refused = w.hint != "" || errors.Is(w.err, errFollows); !x.refused {
		delete(s.scouts, x.endpoint)
	}
	useful := w.hint != "" && w.hint != s.avoid && s.scouts[w.hint] == nil
	now := s.e.g.Now()
	switch {
	case x != s.newest && useful:
		s.route.News(now, w.hint)
	case x != s.newest:
	case useful:
		s.route.Hint(now, w.hint)
	default:
		s.route.Failed(now)
	}
	if x == s.newest || useful {
		s.newest = nil
	}
}

// errFollows is what a node is told to have said that does not lead.
var errFollows = errors.New("the node does not lead")

// run asks until the node leads, or cannot be asked any more.
func (x *scout) run(e *engine, words chan<- word) {
	l, err := e.dial(x)
	for err == nil {
		var m session.Message
		if m, err = l.attach(); err != nil {
			break
		}
		if m.Kind == session.KindTable {
			if !x.tell(words, word{from: x, link: l}) {
				l.end()
			}
			return
		}
		x.tell(words, word{from: x, hint: m.Endpoint, err: errFollows})
		err = x.rest(l.number)
	}
	x.tell(words, word{from: x, err: err})
	if l != nil {
		l.end()
	}
	x.cancel()
}

// tell reports whether anybody listens still.
func (x *scout) tell(words chan<- word, w word) bool {
	select {
	case words <- w:
		return true
	case <-x.ctx.Done():
		return false
	}
}

// rest pauses before the node is asked again: not at first, since then it answers
// only when it has news, but one that has news all the time is no help.
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

// attach asks the node whether it leads, by a session that there is not: who leads
// answers with an empty table, who does not refuses.
func (l *link) attach() (m session.Message, err error) {
	l.number++
	ask := session.Message{Kind: session.KindAttach, Session: l.id, Stream: l.number}
	if err := l.stream.Send(&pb.Batch{Messages: session.AppendMessage(nil, &ask)}); err != nil {
		_, err = l.stream.Recv() // why
		return m, err
	}
	for {
		b, err := l.stream.Recv()
		if err != nil {
			return m, err
		}
		m, _, err := session.DecodeMessage(b.GetMessages())
		if err != nil || m.Kind == session.KindTable || m.Kind == session.KindRefused && m.Refusal == session.RefusedNoLeader {
			return m, err
		}
	}
}

// doubts looks for another leader whenever the link is doubted. If there is one,
// it is e.heir, and the link ends.
func (e *engine) doubts(l *link) {
	others := slices.DeleteFunc(slices.Clone(e.cfg.Endpoints), func(x string) bool { return x == l.endpoint })
	for len(others) > 0 {
		select {
		case <-l.doubted:
		case <-l.stream.Context().Done():
			return
		}
		ctx, cancel := context.WithCancel(l.stream.Context())
		if l.doubting(cancel) {
			l.ping()
			found, err := e.search(ctx, session.NewRoute(rand.Uint64(), others...), l.endpoint)
			if err == nil {
				e.heir = found
				l.cancel()
			}
		}
		cancel()
	}
}
