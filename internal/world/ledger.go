package world

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/core"
)

// ledger knows what clients wait for and what they believe to hold.
type ledger struct {
	w *World

	mu      sync.Mutex
	calls   map[*call]struct{}
	beliefs map[string][]*belief // by namespace and name
	given   map[string]map[uint64]bool
}

func newLedger(w *World) *ledger {
	return &ledger{w: w, calls: map[*call]struct{}{}, beliefs: map[string][]*belief{}, given: map[string]map[uint64]bool{}}
}

// call is one that a client has begun.
type call struct {
	w        *World
	protocol string
	command  string
	name     string
	began    time.Time
	limit    time.Duration // 0: none
	ctx      context.Context
	cancel   context.CancelFunc
}

// slack is how long after its limit a call may be answered: a client gives up at
// once, but what it runs on may be busy with the same instant.
const slack = time.Second

// giveBack is how long the Go API takes at most to give a hold back, whatever the
// caller's limit: waits for latches and barriers end with that.
const giveBack = 5 * time.Second

// late: the call was answered later than it may be.
func (c *call) late() bool {
	most := c.limit + slack
	if c.protocol == "go" && (c.command == "arrive" || c.command == "wait for latch") {
		most += giveBack
	}
	return c.limit > 0 && time.Since(c.began) > most
}

// begin notes a call. One without a limit is answered when the world is well again.
func (w *World) begin(protocol, command, name string, limit time.Duration) *call {
	c := &call{w: w, protocol: protocol, command: command, name: name, began: time.Now(), limit: limit}
	if limit > 0 {
		c.ctx, c.cancel = context.WithTimeout(context.Background(), limit)
	} else {
		c.ctx, c.cancel = context.WithCancel(context.Background())
	}
	w.ledger.mu.Lock()
	defer w.ledger.mu.Unlock()
	w.ledger.calls[c] = struct{}{}
	return c
}

// answer is what an answer says about the effect of a call.
type answer string

const (
	done    answer = "done"
	notDone answer = "not done"
	unknown answer = "unknown"
)

// answered notes the answer of a call.
func (c *call) answered(err error) answer {
	c.cancel()
	l := c.w.ledger
	l.mu.Lock()
	delete(l.calls, c)
	l.mu.Unlock()
	a := verdict(err)
	c.w.count(fmt.Sprintf("answer %s %s: %s", c.protocol, c.command, a))
	c.w.count(fmt.Sprintf("kind %s", kindOf(err)))
	if c.late() {
		c.w.violate("%s %s %s with a limit of %s was answered after %s: %v", c.protocol, c.command, c.name, c.limit, time.Since(c.began), err)
	}
	return a
}

func verdict(err error) answer {
	e, ok := errors.AsType[*driver.Error](err)
	switch {
	case err == nil:
		return done
	case ok && e.Outcome == driver.NotDone:
		return notDone
	}
	return unknown
}

// kindOf names an answer by its kind.
func kindOf(err error) string {
	e, ok := errors.AsType[*driver.Error](err)
	switch {
	case err == nil:
		return "ok"
	case ok && e.Kind != nil:
		return e.Kind.Error()
	case ok:
		return "none"
	}
	return "foreign"
}

// waiting are the calls that are not answered.
func (l *ledger) waiting() (out []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.calls {
		out = append(out, fmt.Sprintf("%s %s %s since %s", c.protocol, c.command, c.name, time.Since(c.began)))
	}
	slices.Sort(out)
	return out
}

// abandon ends all calls, so that the world can end.
func (l *ledger) abandon() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.calls {
		c.cancel()
	}
}

// numbers notes those that a sequence gave out: each only once.
func (l *ledger) numbers(name string, first, n uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.given[name] == nil {
		l.given[name] = map[uint64]bool{}
	}
	for i := first; i < first+n; i++ {
		if l.given[name][i] {
			l.w.violate("%s gave %d out twice", name, i)
		}
		l.given[name][i] = true
	}
}

// belief is a hold as its client sees it.
type belief struct {
	owner     string
	token     uint64
	exclusive bool
	holds     func() bool // still; it must not block
}

// believe notes a hold from its grant on.
func (l *ledger) believe(name string, b *belief) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.beliefs[name] = append(l.beliefs[name], b)
}

// doubt ends a belief, before its client gives the hold back.
func (l *ledger) doubt(name string, b *belief) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.beliefs[name] = slices.DeleteFunc(l.beliefs[name], func(x *belief) bool { return x == b })
}

// granted: when a name is granted, no client believes to hold it without a grant.
func (l *ledger) granted(e *core.Event, now []core.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range l.beliefs[e.Namespace+"/"+e.Name] {
		if !b.exclusive && e.Mode != core.Exclusive {
			continue
		}
		if !slices.ContainsFunc(now, func(x core.Event) bool { return x.Token == b.token }) && b.holds() {
			l.w.violate("%s: token %d is granted while %s still believes to hold it by %d", e.Name, e.Token, b.owner, b.token)
		}
	}
}
