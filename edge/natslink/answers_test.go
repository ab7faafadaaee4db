//go:build unix

package natslink_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/holdfast-io/holdfast/crdt"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/edge"
	"github.com/holdfast-io/holdfast/edge/natslink"
	"github.com/holdfast-io/holdfast/internal/services"
)

// troubles are the errors that a link has told.
type troubles struct {
	mu   sync.Mutex
	told []string
}

func (t *troubles) add(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.told = append(t.told, err.Error())
}

func (t *troubles) all() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]string(nil), t.told...)
}

// narrow makes the stream of the test, which takes no more than the least that a link asks for.
func narrow(t *testing.T, url string) {
	t.Helper()
	if _, err := stream(t, url).AddStream(&nats.StreamConfig{
		Name: t.Name(), Subjects: []string{"test." + t.Name() + ".s.>"}, MaxMsgsPerSubject: 1, MaxMsgSize: 64 << 10,
	}); err != nil {
		t.Fatal(err)
	}
}

func noise(size int) []byte {
	m := make([]byte, size)
	rand.Read(m)
	return m
}

func place(part int) edge.Place {
	return edge.Place{Actor: crdt.Actor{Node: "a"}, Kind: "counters", Part: part}
}

// TestRefusedState: a state that the stream refuses is told once, by the error of the link until a later state of
// its place is kept, and by the next state.
func TestRefusedState(t *testing.T) {
	url := services.SharedNATS(t).URL()
	narrow(t, url)
	var told troubles
	l := link(t, url, &natslink.Options{OnError: told.add})
	stop, err := l.Listen(func([]byte) {})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	keep := func(part, size int) error { return l.Keep(place(part), 0, noise(size)) }
	wrong := func() bool {
		return errors.Is(l.Err(), driver.ErrUnavailable) && strings.Contains(l.Err().Error(), "message size exceeds maximum")
	}
	said := func() string { return fmt.Sprintf("the link says %v", l.Err()) }
	if err := keep(0, 100<<10); err != nil {
		t.Fatal(err)
	}
	eventually(t, wrong, said)
	for _, size := range []int{100 << 10, 10} { // the second refusal, and then the state that is kept
		if err := keep(0, size); err == nil || err.Error() != l.Err().Error() {
			t.Errorf("the state after a refused one: %v; %s", err, said())
		}
		if err := keep(1, 10); err != nil {
			t.Errorf("another place: %v", err)
		}
		eventually(t, func() bool { return l.Unanswered() == 0 }, func() string { return fmt.Sprint(l.Unanswered(), " states are not answered") })
	}
	eventually(t, func() bool { return l.Err() == nil }, said)
	if err := keep(0, 10); err != nil {
		t.Errorf("after a kept state: %v", err)
	}
	if all := told.all(); len(all) != 1 {
		t.Errorf("told: %q", all)
	}
}

// TestRefusedStates: a node counts its states that were refused.
func TestRefusedStates(t *testing.T) {
	url := services.SharedNATS(t).URL()
	narrow(t, url)
	c, l := fast, link(t, url, nil)
	c.MaxMessage = 200 << 10
	a := nodeOf(t, c, "a", l)
	for range 3000 {
		counter(t, a, fmt.Sprintf("%x", noise(20))).Add(1)
	}
	eventually(t, func() bool { return a.Stats().SendErrors > 0 && l.Err() != nil }, func() string { return fmt.Sprintf("%v, %+v", l.Err(), a.Stats()) })
}

// TestAboveMaxPayload: a state that is larger than any message of the server is told, by name of the setting.
func TestAboveMaxPayload(t *testing.T) {
	var told troubles
	l := link(t, services.NATS(t, services.Setting("max_payload", "65536")).URL(), &natslink.Options{OnError: told.add})
	stop, err := l.Listen(func([]byte) {})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	for range 2 {
		if err := l.Keep(place(0), 0, noise(100<<10)); !errors.Is(err, nats.ErrMaxPayload) {
			t.Errorf("a large state: %v", err)
		}
	}
	if err := l.Err(); err == nil || !strings.Contains(err.Error(), "max_payload of 65536") {
		t.Errorf("the link says %v", err)
	}
	if all := told.all(); len(all) != 1 {
		t.Errorf("told: %q", all)
	}
	if err := l.Keep(place(0), 0, noise(10)); err != nil {
		t.Errorf("a small state after it: %v", err)
	}
	eventually(t, func() bool { return l.Err() == nil }, func() string { return fmt.Sprint(l.Err()) })
}

// TestSmallMaxPayload: nodes tell each other all on a server that takes small messages only.
func TestSmallMaxPayload(t *testing.T) {
	url := services.NATS(t, services.Setting("max_payload", "4096")).URL()
	la, lb := link(t, url, nil), link(t, url, nil)
	a, b := node(t, "a", la), node(t, "b", lb)
	for range 1000 {
		counter(t, a, fmt.Sprintf("%x", noise(20))).Add(1)
	}
	eventually(t, func() bool { return b.Total() == 1000 }, func() string { return fmt.Sprintf("%d of 1000, %v, %+v", b.Total(), la.Err(), a.Stats()) })
	late := node(t, "late", link(t, url, nil))
	eventually(t, func() bool { return late.Total() == 1000 }, func() string { return fmt.Sprintf("%d of 1000", late.Total()) })
	if s := a.Stats(); s.SendErrors > 0 || la.Err() != nil {
		t.Errorf("%v, %+v", la.Err(), s)
	}
}

// TestForgetfulStream: a stream that has no room for the states, and takes them all the same, is told of, until it has.
func TestForgetfulStream(t *testing.T) {
	url := services.SharedNATS(t).URL()
	l := link(t, url, nil)
	l.AnswerWithin(time.Second)
	js := stream(t, url)
	set := func(most int64) {
		info, err := js.StreamInfo(t.Name())
		if err == nil {
			info.Config.MaxBytes = most
			_, err = js.UpdateStream(&info.Config)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	set(100)
	c := fast
	c.State = 100 * time.Millisecond
	counter(t, nodeOf(t, c, "a", l), "x").Add(1)
	said := func() string { return fmt.Sprint(l.Err()) }
	eventually(t, func() bool { return l.Err() != nil && strings.Contains(said(), "max_bytes") }, said)
	set(-1)
	eventually(t, func() bool { return l.Err() == nil }, said)
}

// TestFullOfReaders: where a stream lets no more nodes read it, the one too many says what is missing and where it is set,
// and knows all once there is room.
func TestFullOfReaders(t *testing.T) {
	url := services.SharedNATS(t).URL()
	js := stream(t, url)
	if _, err := js.AddStream(&nats.StreamConfig{
		Name: t.Name(), Subjects: []string{"test." + t.Name() + ".s.>"}, MaxMsgsPerSubject: 1, MaxConsumers: 1,
	}); err != nil {
		t.Fatal(err)
	}
	a := node(t, "a", link(t, url, nil))
	counter(t, a, "x").Add(1)
	agree(t, 1, a)
	eventually(t, func() bool {
		info, err := js.StreamInfo(t.Name())
		return err == nil && info.State.Consumers == 1
	}, func() string { return "nobody reads" })
	l := link(t, url, nil)
	b := node(t, "b", l)
	said := func() string { return fmt.Sprint(l.Err()) }
	eventually(t, func() bool {
		return errors.Is(l.Err(), driver.ErrUnavailable) && strings.Contains(said(), t.Name()) && strings.Contains(said(), "max_consumers")
	}, said)
	a.Close()
	eventually(t, func() bool { return l.Err() == nil }, said)
	agree(t, 1, b)
}
