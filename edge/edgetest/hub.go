// Package edgetest links nodes of package edge within a test, over a network that
// loses, repeats, reorders and delays messages and falls apart into partitions, the
// same in every run of one seed.
//
//	synctest.Test(t, func(t *testing.T) {
//		hub := edgetest.NewHub(edgetest.Faults{Seed: 7, Loss: 20, MaxDelay: time.Second})
//		a, err := edge.Open(edge.Config{Actor: "a", Link: hub.Link("a")})
//
// In a bubble of testing/synctest time is fake, and a minute of faults takes as long
// as its messages.
package edgetest

import (
	"bytes"
	"cmp"
	"container/heap"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"time"
)

// ErrDown is what Send says while a link is down.
var ErrDown = errors.New("edgetest: the link is down")

// Faults is what the network does to messages. The fate of a message depends on the
// seed, on its two ends and on how many went between them before, and on nothing
// else, so that it is the same whatever order goroutines run in.
type Faults struct {
	Seed uint64
	// Loss and Repeat are the parts of messages that are lost, and that come again,
	// in percent.
	Loss, Repeat int
	// MaxDelay bounds how long a message is on its way; messages overtake each other.
	// 0: a microsecond.
	MaxDelay time.Duration
}

// Hub is a network in memory.
type Hub struct {
	mu        sync.Mutex
	faults    Faults
	links     []*Link
	side      map[string]int // by partition; a name without one is on side 0
	down      map[string]bool
	sent      map[[2]string]uint64
	queue     queue
	timer     *time.Timer
	busy      bool
	delivered []Delivery
}

// Delivery is a message that has arrived.
type Delivery struct {
	At       time.Time
	From, To string
	Size     int
}

// NewHub is a network without links.
func NewHub(f Faults) *Hub {
	return &Hub{faults: f, side: map[string]int{}, down: map[string]bool{}, sent: map[[2]string]uint64{}}
}

// Link is one node's end of the network; it is an edge.Link.
type Link struct {
	hub     *Hub
	name    string
	receive func([]byte)
}

// Link makes an end of that name. Several ends of one name are one place of the
// network: faults and partitions mean them all.
func (h *Hub) Link(name string) *Link {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := &Link{hub: h, name: name}
	h.links = append(h.links, l)
	return l
}

// Listen is edge.Link's: messages come one after the other.
func (l *Link) Listen(receive func([]byte)) (stop func(), err error) {
	l.set(receive)
	return func() { l.set(nil) }, nil
}

func (l *Link) set(receive func([]byte)) {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	l.receive = receive
}

// Send is edge.Link's.
func (l *Link) Send(message []byte) error {
	h := l.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.down[l.name] {
		return fmt.Errorf("send from %q: %w", l.name, ErrDown)
	}
	message = bytes.Clone(message)
	for i, to := range h.links {
		if to != l {
			h.post(l, to, i, message)
		}
	}
	h.wind()
	return nil
}

// post decides the fate of a message to one end.
func (h *Hub) post(from, to *Link, index int, message []byte) {
	pair := [2]string{from.name, to.name}
	h.sent[pair]++
	n := h.sent[pair]
	if h.side[from.name] != h.side[to.name] || h.chance(pair, n, "loss") < h.faults.Loss {
		return
	}
	h.queue.add(item{time.Now().Add(h.delay(pair, n, "delay")), from.name, index, n, to, message})
	if h.chance(pair, n, "repeat") < h.faults.Repeat {
		h.queue.add(item{time.Now().Add(h.delay(pair, n, "again")), from.name, index, n, to, message})
	}
}

func (h *Hub) chance(pair [2]string, n uint64, what string) int {
	return int(h.draw(pair, n, what) % 100)
}

// delay is at least a nanosecond: what is sent at one moment arrives after all of it
// was sent.
func (h *Hub) delay(pair [2]string, n uint64, what string) time.Duration {
	most := max(h.faults.MaxDelay, time.Microsecond)
	return 1 + time.Duration(h.draw(pair, n, what)%uint64(most))
}

func (h *Hub) draw(pair [2]string, n uint64, what string) uint64 {
	f := fnv.New64a()
	fmt.Fprintf(f, "%d %q %q %d %s", h.faults.Seed, pair[0], pair[1], n, what)
	v := f.Sum64()
	v = (v ^ v>>33) * 0xff51afd7ed558ccd
	return v ^ v>>33
}

// wind sets the timer to the next arrival.
func (h *Hub) wind() {
	if h.busy || len(h.queue) == 0 {
		return
	}
	wait := time.Until(h.queue[0].at)
	if h.timer == nil {
		h.timer = time.AfterFunc(wait, h.deliver)
		return
	}
	h.timer.Reset(wait)
}

// deliver hands over what has arrived, one message after the other.
func (h *Hub) deliver() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.busy {
		return
	}
	h.busy = true
	for len(h.queue) > 0 && !h.queue[0].at.After(time.Now()) {
		it := heap.Pop(&h.queue).(item)
		receive := it.to.receive
		if receive == nil || h.side[it.from] != h.side[it.to.name] {
			continue
		}
		h.delivered = append(h.delivered, Delivery{it.at.Round(0), it.from, it.to.name, len(it.message)})
		h.mu.Unlock()
		receive(bytes.Clone(it.message))
		h.mu.Lock()
	}
	h.busy = false
	h.wind()
}

// Set changes the faults for what is sent from now on.
func (h *Hub) Set(f Faults) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults = f
}

// Partition cuts the named ends off from all others; between each other they go on.
// Messages across the cut are lost, also those on their way. It replaces an earlier
// partition.
func (h *Hub) Partition(names ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.side)
	for _, name := range names {
		h.side[name] = 1
	}
}

// Split gives each of the named ends a side of its own.
func (h *Hub) Split(names ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.side)
	for i, name := range names {
		h.side[name] = i + 1
	}
}

// Heal ends the partition.
func (h *Hub) Heal() { h.Partition() }

// Down makes Send of an end fail, or work again.
func (h *Hub) Down(name string, down bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.down[name] = down
}

// Delivered are all messages that have arrived, in order.
func (h *Hub) Delivered() []Delivery {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.delivered)
}

// item is a message on its way.
type item struct {
	at      time.Time
	from    string
	index   int // of the end it goes to
	n       uint64
	to      *Link
	message []byte
}

// queue is ordered by arrival, and at one moment by ends and number.
type queue []item

func (q *queue) add(it item)       { heap.Push(q, it) }
func (q queue) Len() int           { return len(q) }
func (q queue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)        { *q = append(*q, x.(item)) }
func (q queue) Less(i, j int) bool { return compare(q[i], q[j]) < 0 }
func (q *queue) Pop() any {
	old := *q
	it := old[len(old)-1]
	old[len(old)-1] = item{}
	*q = old[:len(old)-1]
	return it
}

func compare(a, b item) int {
	return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.from, b.from), cmp.Compare(a.index, b.index), cmp.Compare(a.n, b.n))
}
