package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast/internal/node/storage"
	"github.com/holdfast-io/holdfast/internal/node/transport"
)

// images are processes with one directory in fake time, and links on which their questions and answers take their time.
type images struct {
	t     *testing.T
	list  []*image
	delay func(asker, leg int) time.Duration // of a question, leg 0, or the answer to it; negative: it is lost
	mu    sync.Mutex
}

// image is a process, whether it has begun, and why it has stopped.
type image struct {
	*Server
	begun   bool
	stopped error
}

const theDirectory = 77

func newImages(t *testing.T, n int, delay func(asker, leg int) time.Duration) *images {
	x := &images{t: t, delay: delay}
	for i := range n {
		s := &Server{cfg: Config{ID: 1}}
		s.twin.self = presence{Node: 1, Of: theDirectory, Run: uint64(10 + i), Stage: listens, At: fmt.Sprintf("h%d:1", i)}
		x.list = append(x.list, &image{Server: s})
	}
	return x
}

// ask puts a question of one image to the one at an address. One that is to stop answers as before: it takes a moment.
func (x *images) ask(from int) asker {
	return func(_ uint64, addr string, question []byte) ([]byte, error) {
		var to int
		if _, err := fmt.Sscanf(addr, "h%d:1", &to); err != nil || !x.leg(from, to, 0) || !x.begun(to) {
			return nil, errors.New("nobody is there")
		}
		nobody := func(uint64, string, []byte) ([]byte, error) { return nil, errors.New("cut off") }
		b, stop := x.list[to].sighted(nobody, theDirectory, question[1:])
		x.stop(to, stop)
		if !x.leg(from, to, 1) {
			return nil, errors.New("the answer is lost")
		}
		return b, nil
	}
}

// leg is the way of a question or an answer; false: it is lost.
func (x *images) leg(asker, asked, leg int) bool {
	if asker == asked {
		return true
	}
	x.mu.Lock()
	d := x.delay(asker, leg)
	x.mu.Unlock()
	time.Sleep(max(d, 0))
	return d >= 0
}

func (x *images) stop(i int, why error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.list[i].stopped = errors.Join(x.list[i].stopped, why)
}

func (x *images) begun(i int) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.list[i].begun
}

// begin has an image begin after a time, by a clock of its own, and ask the others; in the end it takes part.
func (x *images) begin(i int, after time.Duration, clock int64) {
	go func() {
		time.Sleep(after)
		x.mu.Lock()
		x.list[i].twin.self.Began, x.list[i].begun = int64(after)+clock, true
		x.mu.Unlock()
		x.seek(i)
		x.list[i].twin.reach(takesPart)
	}()
}

func (x *images) seek(i int) {
	addrs := map[string]uint64{}
	for j := range x.list {
		addrs[fmt.Sprintf("h%d:1", j)] = 1
	}
	_, err := x.list[i].Server.seek(x.ask(i), addrs)
	x.stop(i, err)
}

// remain are the images that have not stopped.
func (x *images) remain() (list []int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i, m := range x.list {
		if m.stopped == nil {
			list = append(list, i)
		} else if !errors.Is(m.stopped, storage.ErrCopied) {
			x.t.Errorf("an image stops with %v", m.stopped)
		}
	}
	return list
}

// settles lets all questions come to their ends, and has those that remain ask once more, without losses.
func (x *images) settles() {
	time.Sleep(time.Second)
	synctest.Wait()
	if len(x.remain()) == 0 {
		x.t.Fatal("all of them stop")
	}
	x.mu.Lock()
	x.delay = func(int, int) time.Duration { return 0 }
	x.mu.Unlock()
	for _, i := range x.remain() {
		x.seek(i)
	}
	if left := x.remain(); len(left) != 1 {
		x.t.Fatalf("%v go on", left)
	}
}

// Two images that meet, in each order in which their questions, answers and starts can come, with any of these lost and with
// clocks that differ: one stops, never both.
func TestTwoImages(t *testing.T) {
	delays := []time.Duration{-1, 0, 2, 5}
	for n := range 4 * 4 * 4 * 4 * 3 * 3 {
		pick := func(size int) int { i := n % size; n /= size; return i }
		var legs [2][2]time.Duration // of the question of each, and of the answer to it
		for i := range 4 {
			legs[i/2][i%2] = delays[pick(4)]
		}
		second, clock := time.Duration([]int{0, 1, 4}[pick(3)]), []int64{-10, 0, 10}[pick(3)]
		synctest.Test(t, func(t *testing.T) {
			x := newImages(t, 2, func(asker, leg int) time.Duration { return legs[asker][leg] })
			x.begin(0, 0, clock)
			x.begin(1, second, 0)
			x.settles()
		})
		if t.Failed() {
			t.Fatalf("questions and answers take %v, the second begins after %v, the first with its clock at %d", legs, second, clock)
		}
	}
}

// Three and more that meet at random: one remains.
func TestManyImages(t *testing.T) {
	for seed := range uint64(1000) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			x := newImages(t, 3+int(seed%3), func(int, int) time.Duration { return time.Duration(r.IntN(12) - 1) })
			late, clocks := r.Perm(10), r.Perm(20)
			for i := range x.list {
				x.begin(i, time.Duration(late[i]), int64(clocks[i]))
			}
			x.settles()
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// One that takes part stays, though the clock of another that has yet to says that it began before.
func TestImageWithAClockBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newImages(t, 2, func(int, int) time.Duration { return 1 })
		x.begin(0, 0, int64(time.Hour))
		x.list[0].twin.reach(takesPart)
		x.begin(1, time.Minute, 0)
		time.Sleep(time.Hour)
		synctest.Wait()
		if left := x.remain(); len(left) != 1 || left[0] != 0 {
			t.Errorf("%v go on", left)
		}
	})
}

// Two that do not reach each other find each other by a third node, which knows of both: the later one stops.
func TestImagesThatDoNotReachEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newImages(t, 2, func(int, int) time.Duration { return 1 })
		third := &Server{cfg: Config{ID: 3}}
		third.twin.self = presence{Node: 3, Of: 99, Run: 1}
		passing := func(_ uint64, addr string, question []byte) ([]byte, error) { return x.ask(0)(1, addr, question) }
		for i := range 2 {
			x.list[i].twin.self.Began, x.list[i].begun = int64(i), true
			answered, err := x.list[i].seek(func(_ uint64, addr string, question []byte) ([]byte, error) {
				if addr != "third:1" {
					return nil, errors.New("cut off")
				}
				b, _ := third.sighted(passing, theDirectory, question[1:])
				return b, nil
			}, map[string]uint64{"third:1": 3})
			if stops := err != nil; !answered || stops != (i == 1) {
				t.Errorf("image %d, answered %v, stops with %v", i, answered, err)
			}
			if i == 1 && !strings.Contains(err.Error(), "listens for other nodes at h0:1") {
				t.Errorf("it stops with %v", err)
			}
		}
	})
}

// A node hears nothing before another has answered it, unless nobody that it asks answers while others speak to it.
func TestHearsAfterAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newImages(t, 3, nil)
		answered, asked, stopped := &x.list[0].twin, &x.list[1].twin, &x.list[2].twin
		stopped.meet(&presence{Run: 1})
		for _, m := range x.list {
			if m.twin.hears() {
				t.Error("it hears what it is told before it has asked")
			}
		}
		if answered.reach(takesPart); !answered.hears() {
			t.Error("it hears nothing after an answer")
		}
		time.Sleep(deafFor)
		if !asked.hears() || !asked.takesPart() || stopped.hears() {
			t.Error("it hears nothing for ever, or hears on although it is to stop")
		}
	})
}

// A program that does not know the question hangs up: it has answered. One that cannot be reached has not.
func TestOldProgramsAnswer(t *testing.T) {
	s := newImages(t, 1, nil).list[0]
	for err, want := range map[error]bool{io.EOF: true, fmt.Errorf("%w: %w", transport.ErrHandshake, io.EOF): false, io.ErrUnexpectedEOF: false} {
		answered, failed := s.seek(func(uint64, string, []byte) ([]byte, error) { return nil, err }, map[string]uint64{"a:1": 2})
		if answered != want || failed != nil {
			t.Errorf("%v: answered %v, %v", err, answered, failed)
		}
	}
	own, _ := json.Marshal(sighted{Self: true})
	if answered, _ := s.seek(func(uint64, string, []byte) ([]byte, error) { return own, nil }, map[string]uint64{"a:1": 2}); answered {
		t.Error("its own answer counts")
	}
}
