package gateway

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/server"
)

// Tenure is the time for which one node leads, as this node sees it. What was asked
// of a leader is given up some time after another has taken its place: a leader that
// was stopped or cut off may never answer.
type Tenure struct {
	server.Leader
	here bool // the leader is this node
	ctx  context.Context
	end  context.CancelCauseFunc
}

// elsewhere: the leader is another node, and it is known where.
func (t *Tenure) elsewhere() bool { return !t.here && t.Addr != "" }

// During is ctx, but that it ends with the tenure, too.
func (t *Tenure) During(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(t.ctx, func() { cancel(context.Cause(t.ctx)) })
	return ctx, func() { stop(); cancel(nil) }
}

// farewell is how long a leader that another has followed may still answer. One that
// hands over does so at once, and one that is cut off not at all.
const farewell = time.Second

// isolated is how long a call waits on this node for the outcome of what it has
// proposed, once it does not lead any more: the next leader tells it as soon as it is
// heard.
const isolated = 10 * time.Second

// Context ends with the tenure.
func (t *Tenure) Context() context.Context { return t.ctx }

var (
	errSilent   = errors.New("the leader does not answer: what it was asked may have been done; look before you repeat it, or repeat it with an idempotency key")
	errDeposed  = errors.New("another node leads by now, and the one that was asked has not answered: it may have been done; look before you repeat it, or repeat it with an idempotency key")
	errIsolated = errors.New("this node has lost its leadership, and knows no node that could tell the outcome: it may have been done; look before you repeat it, or repeat it with an idempotency key")
)

// tenures follow the leadership of a group, as lead tells it together with a channel
// that is closed with its next change.
type tenures struct {
	s    *server.Server
	lead func() (server.Leader, <-chan struct{})
	life context.Context

	once sync.Once
	mu   sync.Mutex
	now  *Tenure
	late map[*Tenure]*time.Timer // those that others have followed
	news chan struct{}           // closed with the next change
	// reign counts the changes of leaders, also to one that has led before.
	reign uint64
}

// current is the tenure of now.
func (t *tenures) current() *Tenure {
	now, _ := t.look()
	return now
}

// look is current, and a channel that is closed with the next change. It asks the node
// itself: a call that was refused because this node does not lead any more must not
// find, a moment later, that it does.
func (t *tenures) look() (*Tenure, <-chan struct{}) {
	t.once.Do(t.begin)
	t.follow()
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.now, t.news
}

// reignNow is the number of the reign of now.
func (t *tenures) reignNow() uint64 {
	t.look()
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.reign
}

func (t *tenures) begin() {
	changed := t.follow()
	go func() {
		for {
			select {
			case <-changed:
			case <-t.life.Done():
				return
			case <-t.s.Done():
				return
			}
			changed = t.follow()
		}
	}()
}

// follow begins the tenure of the leader of now, or goes on with that of one that was
// away for a moment only. What it returns is closed with the next change.
func (t *tenures) follow() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	l, changed := t.lead() // with the lock, so that an older word never comes after a newer one
	old := t.now
	if old != nil && old.Leader == l {
		return changed
	}
	t.reign++
	t.now = t.back(l)
	if t.now == nil {
		t.now = t.start(l)
	}
	if old != nil {
		wait, why := farewell, errDeposed
		if old.here {
			wait, why = isolated, errIsolated
		}
		t.late[old] = time.AfterFunc(wait, func() { t.expire(old, why) })
	}
	t.tell()
	return changed
}

func (t *tenures) start(l server.Leader) *Tenure {
	x := &Tenure{Leader: l, here: l.ID == t.s.ID()}
	x.ctx, x.end = context.WithCancelCause(t.life)
	return x
}

// back is the tenure of a leader that leads again before it was given up; nil: there
// is none. t is locked.
func (t *tenures) back(l server.Leader) *Tenure {
	for x, timer := range t.late {
		if x.Leader == l && timer.Stop() {
			delete(t.late, x)
			return x
		}
	}
	return nil
}

func (t *tenures) tell() {
	if t.news != nil {
		close(t.news)
	}
	t.news = make(chan struct{})
}

// expire ends a tenure; what is still asked of its leader ends with it.
func (t *tenures) expire(x *Tenure, why error) {
	t.mu.Lock()
	delete(t.late, x)
	t.mu.Unlock()
	x.end(why)
}

// giveUp ends a tenure although nobody else leads, because its leader does not
// answer. A call from now on tries anew.
func (t *tenures) giveUp(x *Tenure, why error) {
	t.mu.Lock()
	if t.now == x {
		t.now = t.start(x.Leader)
		t.tell()
	}
	t.mu.Unlock()
	x.end(why)
}

// patience is how long a call waits for a leader: as long as the shortest lease lives,
// which is made to outlive an election.
func (t *tenures) patience() time.Duration {
	return min(max(t.s.MinTTL(), time.Second), 5*time.Second)
}

// known is the current tenure; if nobody leads, a call waits for a while.
func (t *tenures) known(ctx context.Context) *Tenure {
	return t.until(ctx, func(x *Tenure) bool { return x.ID != 0 })
}

// after waits for a while for another tenure than x, in which it is known which node to
// ask; nil: there is none.
func (t *tenures) after(ctx context.Context, x *Tenure) *Tenure {
	next := t.until(ctx, func(y *Tenure) bool { return y != x && (y.here || y.Addr != "") })
	if next == x || ctx.Err() != nil {
		return nil
	}
	return next
}

// until waits for a tenure that will do, and returns the last one seen.
func (t *tenures) until(ctx context.Context, ok func(*Tenure) bool) *Tenure {
	x, changed := t.look()
	if ok(x) {
		return x
	}
	late := time.NewTimer(t.patience())
	defer late.Stop()
	for !ok(x) {
		select {
		case <-changed:
			x, changed = t.look()
		case <-late.C:
			return x
		case <-ctx.Done():
			return x
		}
	}
	return x
}
