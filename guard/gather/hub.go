package gather

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/guard"
)

// Interest is what a subscriber wants to be woken by.
type Interest struct {
	Inputs []guard.Input
	// Events are further ones, of names that no input has.
	Events []Pattern
	// Changed is told which inputs may have changed; none: an event of Events came. It
	// must not block.
	Changed func(inputs ...guard.Input)
}

// hub follows each source once, however many wait, and wakes those that want it.
type hub struct {
	g       *Gatherer
	mu      sync.Mutex
	wanted  map[guard.Input]map[*Interest]bool
	events  map[*Interest]bool
	follows map[Source]*follow
}

// follow is a source that is followed as long as somebody wants it.
type follow struct {
	users int
	stop  context.CancelFunc
	done  chan struct{}
}

func (h *hub) init(g *Gatherer) {
	h.g, h.wanted, h.events, h.follows = g, map[guard.Input]map[*Interest]bool{}, map[*Interest]bool{}, map[Source]*follow{}
}

// Subscribe wakes by i.Changed until stop is called. What happened before Subscribe is not
// told; look after it.
func (g *Gatherer) Subscribe(i Interest) (stop func()) {
	h, own := &g.hub, &i
	h.mu.Lock()
	for _, in := range i.Inputs {
		if h.wanted[in] == nil {
			h.wanted[in] = map[*Interest]bool{}
		}
		h.wanted[in][own] = true
	}
	if len(i.Events) > 0 {
		h.events[own] = true
	}
	sources := h.sourcesOf(own)
	for s := range sources {
		h.begin(s)
	}
	h.mu.Unlock()
	for s := range sources {
		if c, ok := s.(*coordination); ok {
			c.widen(h, own)
		}
	}
	return sync.OnceFunc(func() { h.leave(own, sources) })
}

// sourcesOf are the sources that an interest needs; h is locked.
func (h *hub) sourcesOf(i *Interest) map[Source]bool {
	sources := map[Source]bool{}
	for _, in := range i.Inputs {
		if s := h.g.sources[in.Source]; s != nil {
			sources[s] = true
		}
	}
	if len(i.Events) > 0 && h.g.space != nil {
		sources[h.g.space] = true
	}
	return sources
}

// begin follows a source, if nobody does yet; h is locked.
func (h *hub) begin(s Source) {
	if f := h.follows[s]; f != nil {
		f.users++
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	f := &follow{users: 1, stop: stop, done: make(chan struct{})}
	h.follows[s] = f
	go func() {
		defer close(f.done)
		if c, ok := s.(*coordination); ok {
			c.follow(ctx, h)
			return
		}
		s.Follow(ctx, func() []guard.Input { return h.of(s) }, h.changed)
	}()
}

// leave ends an interest, and the following of what nobody wants any more.
func (h *hub) leave(i *Interest, sources map[Source]bool) {
	h.mu.Lock()
	for _, in := range i.Inputs {
		if delete(h.wanted[in], i); len(h.wanted[in]) == 0 {
			delete(h.wanted, in)
		}
	}
	delete(h.events, i)
	var over []*follow
	for s := range sources {
		if f := h.follows[s]; f.users == 1 {
			delete(h.follows, s)
			f.stop() // before the next one can begin, for which it must not be taken: see coordination.begin
			over = append(over, f)
		} else {
			f.users--
		}
	}
	h.mu.Unlock()
	for _, f := range over {
		f.ended()
	}
}

// ended waits until nothing is followed any more, but not for long: a source that asks a file
// system which does not answer may never end, and the subscriber that leaves may have a hold to give back.
func (f *follow) ended() {
	select {
	case <-f.done:
	case <-time.After(time.Second):
	}
}

// of are the inputs of a source that are wanted now.
func (h *hub) of(s Source) (list []guard.Input) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for in := range h.wanted {
		if h.g.sources[in.Source] == s {
			list = append(list, in)
		}
	}
	return list
}

// changed wakes those that want one of the inputs.
func (h *hub) changed(inputs ...guard.Input) {
	h.mu.Lock()
	woken := map[*Interest][]guard.Input{}
	for _, in := range inputs {
		for i := range h.wanted[in] {
			woken[i] = append(woken[i], in)
		}
	}
	h.mu.Unlock()
	for i, list := range woken {
		i.Changed(list...)
	}
}

// happened wakes those that want such an event; nil: events may be missing, and all that
// want any are woken.
func (h *hub) happened(e *holdfast.Event) {
	h.mu.Lock()
	var woken []*Interest
	for i := range h.events {
		for _, p := range i.Events {
			if e == nil || p.Match(e) {
				woken = append(woken, i)
				break
			}
		}
	}
	h.mu.Unlock()
	for _, i := range woken {
		i.Changed()
	}
}
