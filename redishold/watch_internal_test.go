package redishold

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/services"
)

// aHub is one with a subscription that stands.
func aHub() *hub {
	h := &hub{}
	h.init(nil)
	h.join()
	return h
}

// begin has a watcher join the hub, which does not know its revision yet.
func (h *hub) begin() *keyWatch {
	w := &keyWatch{r: &driver.WatchRequest{}, wake: make(chan struct{}, 1)}
	h.add(w)
	return w
}

// told is a message about one thing that happened at a revision.
func (h *hub) told(revision int) {
	n := strconv.Itoa(revision)
	h.hear(row(n, n, n, "lock", "acquired", "m", n, "", "0", "1", "", "", "", "0", "0"))
}

// expect: the watcher reads these events, and has to read anew or not.
func (h *hub) expect(t *testing.T, what string, w *keyWatch, anew bool, revisions ...driver.Revision) {
	t.Helper()
	events, resync := h.read(w)
	if resync != anew || len(events) != len(revisions) {
		t.Fatalf("%s: %d events, resync %t; want the revisions %v, resync %t", what, len(events), resync, revisions, anew)
	}
	for i, e := range events {
		if e.Revision != revisions[i] {
			t.Errorf("%s: the revision %d; want %d", what, e.Revision, revisions[i])
		}
	}
}

// TestRevisionGoesBack: a server that comes back with older data tells everything from
// the resync on, although its revisions were there before.
func TestRevisionGoesBack(t *testing.T) {
	h := aHub()
	w := h.begin()
	h.from(w, 1000)
	h.told(1001)
	h.expect(t, "before", w, false, 1001)
	h.join()
	h.expect(t, "joined again", w, true)
	h.told(501) // the message comes before the answer that told the revision
	h.from(w, 500)
	h.told(502)
	h.expect(t, "from the resync on", w, false, 501, 502)
	h.told(504)
	h.expect(t, "after a gap", w, true)
}

// TestRevisionGoesBackUnnoticed: so does one with a subscription that stands all the while.
func TestRevisionGoesBackUnnoticed(t *testing.T) {
	h := aHub()
	w := h.begin()
	h.from(w, 1000)
	h.told(1001)
	h.told(501)
	h.expect(t, "back", w, true)
	h.from(w, 501)
	h.told(502)
	h.expect(t, "from the resync on", w, false, 502)
}

// TestStaleRevision: a revision of the server as it was before it went back is not
// what a watcher begins with.
func TestStaleRevision(t *testing.T) {
	h := aHub()
	w := h.begin()
	h.join() // while the answer is on its way
	h.from(w, 1000)
	h.expect(t, "joined again", w, true)
	h.told(501)
	h.from(w, 500)
	h.told(502)
	h.expect(t, "from the resync on", w, false, 501, 502)
	h.told(504)
	h.expect(t, "after a gap", w, true)
}

// TestWatchesBeginTogether: of two first watches each gets everything from its own
// revision on, also if the later one knows it first.
func TestWatchesBeginTogether(t *testing.T) {
	h := aHub()
	a, b := h.begin(), h.begin()
	h.from(b, 11)
	h.from(a, 10)
	h.told(11)
	h.told(12)
	h.expect(t, "from 10 on", a, false, 11, 12)
	h.expect(t, "from 11 on", b, false, 12)
}

// TestFirstMessageShowsAGap: what is missing before the first message is seen, too.
func TestFirstMessageShowsAGap(t *testing.T) {
	h := aHub()
	w := h.begin()
	h.from(w, 10)
	h.told(12)
	h.expect(t, "without 11", w, true)
	h.from(w, 12)
	h.told(13)
	h.expect(t, "from the resync on", w, false, 13)
}

// TestOneResyncOfOneGap: what watchers ask for to read anew may show the same gap once more, as does the answer to a look: they are
// not told of it twice. One after what they have asked for is another gap.
func TestOneResyncOfOneGap(t *testing.T) {
	for name, c := range map[string]struct {
		after func(h *hub, w *keyWatch)
		anew  bool
		told  []driver.Revision
	}{
		"message before the answer": {after: func(h *hub, w *keyWatch) { h.told(22); h.from(w, 22) }},
		"answer before the message": {after: func(h *hub, w *keyWatch) { h.from(w, 22); h.told(22) }},
		"look":                      {after: func(h *hub, w *keyWatch) { h.lapse(); h.from(w, 22) }},
		"what comes next":           {after: func(h *hub, w *keyWatch) { h.told(22); h.told(23); h.from(w, 22) }, told: []driver.Revision{23}},
		"another gap":               {after: func(h *hub, w *keyWatch) { h.told(24); h.from(w, 22) }, anew: true},
		"another gap later":         {after: func(h *hub, w *keyWatch) { h.from(w, 22); h.told(22); h.told(24) }, anew: true},
	} {
		t.Run(name, func(t *testing.T) {
			h := aHub()
			w := h.begin()
			h.from(w, 10)
			h.told(20)
			h.expect(t, "without 11 to 19", w, true)
			c.after(h, w)
			h.expect(t, "after the resync", w, c.anew, c.told...)
		})
	}
}

// TestReadsTellWhatTheyEnd: a script that only looks, or changes nothing after all, tells
// of the hold that it found past its deadline.
func TestReadsTellWhatTheyEnd(t *testing.T) {
	request := strings.Repeat("0", 32)
	for name, ask := range map[string]struct {
		script *script
		args   []string
	}{
		"latch that is not there": {countdownScript, []string{"client", request, "", "m0", "0", "0"}},
		"latch":                   {countdownScript, []string{"client", request, "", "m0", "3", "0"}},
		"sequence":                {reserveScript, []string{"client", request, "", "m0", "1"}},
		"limiter":                 {limitSetScript, []string{"key", "l", "k", "rate", "used", "", "0"}},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := aSpace(t, services.Redis(t).URL()+"?holdfast_busy_wait_min=1h&holdfast_busy_wait_max=1h") // it does not look
			l := laden(t, c, 1)
			w, _, err := c.watch(t.Context(), &driver.WatchRequest{})
			if err != nil {
				t.Fatal(err)
			}
			if err := c.rc.do(t.Context(), []string{"ZADD", c.key + "due", "XX", "1", "s" + l.ID.String()})[0].err; err != nil {
				t.Fatal(err)
			}
			if _, err := c.rc.run(t.Context(), ask.script, c.keys, ask.args); err != nil {
				t.Fatal(err)
			}
			select {
			case <-w.wake:
			case <-time.After(20 * time.Second):
				t.Fatal("nothing is told")
			}
			events, resync := c.hub.read(w)
			if resync || len(events) == 0 || events[0].Kind+":"+events[0].Verb != "lock:expired" {
				t.Errorf("resync %t, events %+v; want lock:expired", resync, events)
			}
		})
	}
}
