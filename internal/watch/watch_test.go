package watch_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/watch"
)

func event(rev uint64, name string, v core.Verb) core.Event {
	return core.Event{Revision: rev, Kind: core.EventLock, Verb: v, Name: name}
}

func mustAdd(t *testing.T, h *watch.Hub, f watch.Filter, from uint64) *watch.Watcher {
	t.Helper()
	w, _, err := h.Add(f, from)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func text(events []core.Event) string {
	var b strings.Builder
	for _, e := range events {
		fmt.Fprintf(&b, "%d.%d %s:%s %s;", e.Revision, e.Ordinal, e.Kind, e.Verb, e.Name)
	}
	return b.String()
}

func TestFilters(t *testing.T) {
	events := []core.Event{
		event(1, "jobs/a", core.VerbAcquired),
		event(2, "jobs/a", core.VerbReleased),
		event(3, "jobs/ab", core.VerbAcquired),
		event(4, "other", core.VerbAcquired),
		{Revision: 5, Kind: core.EventKV, Verb: core.VerbPut, Name: "jobs/k"},
		{Revision: 6, Kind: core.EventKV, Verb: core.VerbPut, Name: "jobs/k", Namespace: "elsewhere"},
	}
	tests := []struct {
		name string
		f    watch.Filter
		from uint64
		want string
	}{
		{"everything", watch.Filter{}, 0, "1 2 3 4 5"},
		{"prefix", watch.Filter{Prefix: "jobs/"}, 0, "1 2 3 5"},
		{"exact", watch.Filter{Prefix: "jobs/a", Exact: true}, 0, "1 2"},
		{"prefix without exact", watch.Filter{Prefix: "jobs/a"}, 0, "1 2 3"},
		{"kind", watch.Filter{Patterns: []string{"kv:*"}}, 0, "5"},
		{"verb", watch.Filter{Patterns: []string{"*:acquired"}}, 0, "1 3 4"},
		{"two patterns", watch.Filter{Patterns: []string{"lock:released", "kv:put"}}, 0, "2 5"},
		{"glob", watch.Filter{Glob: "jobs/?"}, 0, "1 2 5"},
		{"namespace", watch.Filter{Namespace: "elsewhere"}, 0, "6"},
		{"from the future", watch.Filter{}, 4, "4 5"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			live, late := watch.NewHub(0, 0), watch.NewHub(0, 0)
			w := mustAdd(t, live, tt.f, tt.from)
			live.Publish(events, 6)
			late.Publish(events, 6)
			past := mustAdd(t, late, tt.f, max(1, tt.from))
			for i, x := range []struct {
				h *watch.Hub
				w *watch.Watcher
			}{{live, w}, {late, past}} {
				got, resync := x.h.Read(x.w, nil, 100)
				var revs []string
				for _, e := range got {
					revs = append(revs, fmt.Sprint(e.Revision))
				}
				if s := strings.Join(revs, " "); s != tt.want || resync != 0 {
					t.Errorf("from %s: got %q (resync %d), want %q", []string{"now", "history"}[i], s, resync, tt.want)
				}
			}
		})
	}
}

func TestBadFilters(t *testing.T) {
	for _, f := range []watch.Filter{
		{Patterns: []string{"lock"}}, {Patterns: []string{":put"}}, {Patterns: []string{"lock:"}},
		{Patterns: []string{"lock:flew"}}, {Patterns: []string{"door:*"}}, {Glob: "["}, {Glob: strings.Repeat("a", 2<<10+1)},
	} {
		if _, _, err := watch.NewHub(0, 0).Add(f, 0); err == nil {
			t.Errorf("%.99v was accepted", f)
		}
	}
	mustAdd(t, watch.NewHub(0, 0), watch.Filter{Glob: strings.Repeat("a", 2<<10)}, 0)
}

// A gap is told: a watcher that resumes below the floor is refused.
func TestCompacted(t *testing.T) {
	h := watch.NewHub(4, 10)
	if _, _, err := h.Add(watch.Filter{}, 10); err == nil {
		t.Error("a watch from before the first event was accepted")
	}
	for rev := uint64(11); rev <= 20; rev++ {
		h.Publish([]core.Event{event(rev, "a", core.VerbAcquired)}, rev)
	}
	var compacted *watch.CompactedError
	if _, _, err := h.Add(watch.Filter{}, 16); !errors.As(err, &compacted) || compacted.Floor != 17 {
		t.Errorf("watch from 16: got %v, want compacted with floor 17", err)
	}
	w := mustAdd(t, h, watch.Filter{}, 17)
	if got, _ := h.Read(w, nil, 100); len(got) != 4 || got[0].Revision != 17 {
		t.Errorf("watch from the floor: got %s", text(got))
	}
}

// What a machine was raised over has never happened on it: a watch that asks for something
// there has seen another history, and is told so. Others see nothing of it.
func TestRaised(t *testing.T) {
	h := watch.NewHub(0, 0)
	waits, later, sees := mustAdd(t, h, watch.Filter{}, 500), mustAdd(t, h, watch.Filter{}, 1000), mustAdd(t, h, watch.Filter{}, 0)
	if woken := h.Publish(nil, 1000); len(woken) != 1 || woken[0] != waits {
		t.Errorf("%d watches are woken", len(woken))
	}
	if _, resync := h.Read(waits, nil, 10); resync != 1001 {
		t.Errorf("a watch from within is told a resync to %d", resync)
	}
	denial := event(1000, "a", core.VerbDenied)
	h.Publish([]core.Event{denial, event(1001, "a", core.VerbAcquired)}, 1001)
	for what, w := range map[string]*watch.Watcher{"from the other end": later, "from now on": sees, "from the beginning": mustAdd(t, h, watch.Filter{}, 1)} {
		if got, resync := h.Read(w, nil, 10); len(got) != 2 || resync != 0 {
			t.Errorf("a watch %s sees %s and a resync to %d", what, text(got), resync)
		}
	}
	refusesBetween(t, h, 1, 1000)
}

// refusesBetween checks that watches from behind a revision, and before another, are refused.
func refusesBetween(t *testing.T, h *watch.Hub, after, next uint64) {
	t.Helper()
	for from, want := range map[uint64]bool{after: false, after + 1: true, next - 1: true, next: false} {
		_, _, err := h.Add(watch.Filter{}, from)
		gone, refused := errors.AsType[*watch.CompactedError](err)
		if refused != want || refused && gone.Floor != next {
			t.Errorf("a watch from %d: %v", from, err)
		}
	}
}

// A log that is applied at once tells the same, and of several gaps that of the newest: no watch
// begins before an older one.
func TestRaisedAgain(t *testing.T) {
	h := watch.NewHub(0, 0)
	h.Publish([]core.Event{event(1000, "a", core.VerbAcquired), event(1001, "a", core.VerbReleased), event(5000, "a", core.VerbAcquired)}, 5000)
	refusesBetween(t, h, 1002, 5000)
	if h.Floor() != 1000 {
		t.Errorf("watches begin from %d", h.Floor())
	}
	if got, _ := h.Read(mustAdd(t, h, watch.Filter{}, 1000), nil, 10); len(got) != 3 {
		t.Errorf("a watch from between the gaps sees %s", text(got))
	}
	h.Jump(9000)
	if _, _, err := h.Add(watch.Filter{}, 9001); err != nil {
		t.Errorf("a watch behind a snapshot: %v", err)
	}
}

// A revision is seen whole or not at all: when the ring drops one of its
// events, the revision is below the floor.
func TestFloorIsWhole(t *testing.T) {
	h := watch.NewHub(3, 0)
	e := event(1, "a", core.VerbAcquired)
	second := e
	second.Ordinal = 1
	h.Publish([]core.Event{e, second}, 1)
	h.Publish([]core.Event{event(2, "a", core.VerbReleased)}, 2)
	h.Publish([]core.Event{event(3, "a", core.VerbAcquired)}, 3)
	if h.Floor() != 2 {
		t.Errorf("floor %d, want 2", h.Floor())
	}
}

func TestSlowWatcherGetsOneResync(t *testing.T) {
	const history = 5000
	h := watch.NewHub(history, 0)
	w := mustAdd(t, h, watch.Filter{}, 0)
	rev := uint64(0)
	for range history + 10 {
		rev++
		h.Publish([]core.Event{event(rev, "a", core.VerbAcquired)}, rev)
	}
	if got, resync := h.Read(w, nil, 10); len(got) != 0 || resync != rev+1 {
		t.Fatalf("got %d events and resync %d, want a resync to %d", len(got), resync, rev+1)
	}
	woken := h.Publish([]core.Event{event(rev+1, "a", core.VerbReleased)}, rev+1)
	if len(woken) != 1 {
		t.Fatalf("after the resync %d watchers were woken", len(woken))
	}
	if got, resync := h.Read(w, nil, 10); text(got) != fmt.Sprintf("%d.0 lock:released a;", rev+1) || resync != 0 {
		t.Errorf("after the resync: %q, resync %d", text(got), resync)
	}
}

// However many events one entry makes, a watcher that reads at once sees all of them,
// also while others follow.
func TestLargeEntry(t *testing.T) {
	for _, n := range []int{1, 1023, 1024, 1025, 5000, watch.DefaultHistory + 1, 60_000} {
		h := watch.NewHub(0, 0)
		every, some := mustAdd(t, h, watch.Filter{}, 0), mustAdd(t, h, watch.Filter{Prefix: "k1"}, 0)
		var want []core.Event
		for i := range n {
			want = append(want, event(1, fmt.Sprint("k", i%3), core.VerbReleased))
			want[i].Ordinal = uint32(i)
		}
		h.Publish(want, 1)
		var all, part []core.Event
		for rev := uint64(2); len(all) < n; rev++ {
			var a, b uint64
			all, a = h.Read(every, all, 128)
			part, b = h.Read(some, part, 128)
			if a != 0 || b != 0 {
				t.Fatalf("%d events: a resync after %d", n, len(all))
			}
			want = append(want, event(rev, "k1", core.VerbAcquired))
			h.Publish(want[len(want)-1:], rev)
		}
		fits := slices.DeleteFunc(slices.Clone(want), func(e core.Event) bool { return e.Name != "k1" })
		all, _ = h.Read(every, all, len(want))
		part, _ = h.Read(some, part, len(want))
		if text(all) != text(want) || text(part) != text(fits) {
			t.Errorf("%d events: one watcher saw %d of %d, the other %d of %d", n, len(all), len(want), len(part), len(fits))
		}
	}
}

// What an entry made too much is forgotten as others follow.
func TestLargeEntryIsForgotten(t *testing.T) {
	const history = 1000
	h := watch.NewHub(history, 0)
	h.Publish(slices.Repeat([]core.Event{event(1, "a", core.VerbReleased)}, 3*history), 1)
	rev := uint64(1)
	for range 3 * history {
		rev++
		h.Publish([]core.Event{event(rev, "a", core.VerbAcquired)}, rev)
	}
	if h.Floor() != rev-history+1 {
		t.Errorf("the floor is %d at %d, want %d events to be kept", h.Floor(), rev, history)
	}
	h.Publish(slices.Repeat([]core.Event{event(rev+1, "a", core.VerbReleased)}, 10*history), rev+1)
	if h.Floor() != rev+2 {
		t.Errorf("an entry of ten times the history is kept from %d on", h.Floor())
	}
}

// put is an event of a key with a value of so many bytes before and after.
func put(rev uint64, value []byte) core.Event {
	e := event(rev, "k", core.VerbPut)
	e.Kind, e.KeyChange = core.EventKV, &core.KeyChange{Key: core.Key{Value: value}, Prev: core.Key{Value: value}}
	return e
}

// The history of large values is bounded in bytes: it goes as far back as they do, and an
// entry of them is whole for a watcher that reads at once.
func TestLargeValues(t *testing.T) {
	const most = 64 << 20
	value := make([]byte, 60<<10)
	h := watch.NewHub(0, 0)
	rev := uint64(0)
	for range watch.DefaultHistory {
		rev++
		h.Publish([]core.Event{event(rev, "small", core.VerbReleased)}, rev)
	}
	for range 2 * most / len(value) {
		rev++
		h.Publish([]core.Event{put(rev, value)}, rev)
	}
	if kept := int(rev-h.Floor()+1) * 2 * len(value); kept > most || kept < most-4*len(value) {
		t.Errorf("the history has %d bytes, want %d", kept, most)
	}
	w, n := mustAdd(t, h, watch.Filter{}, 0), 3*most/2/len(value)
	rev++
	h.Publish(slices.Repeat([]core.Event{put(rev, value)}, n), rev)
	for read := []core.Event(nil); len(read) < n; {
		var resync uint64
		if read, resync = h.Read(w, read, 128); resync != 0 {
			t.Fatalf("a resync after %d events of an entry of %d", len(read), n)
		}
		rev++
		h.Publish([]core.Event{put(rev, value)}, rev)
	}
	for range n {
		rev++
		h.Publish([]core.Event{put(rev, value)}, rev)
	}
	if kept := int(rev-h.Floor()+1) * 2 * len(value); kept > most || kept < most-4*len(value) {
		t.Errorf("after a large entry the history has %d bytes, want %d", kept, most)
	}
}

// What happens after a resync follows, also a denial, which has the revision of the
// last change.
func TestDenialsFollowAResync(t *testing.T) {
	h := watch.NewHub(10, 0)
	w := mustAdd(t, h, watch.Filter{}, 0)
	for rev := uint64(1); rev <= 20; rev++ {
		h.Publish([]core.Event{event(rev, "a", core.VerbAcquired)}, rev)
	}
	if _, resync := h.Read(w, nil, 10); resync != 21 || h.Next() != (watch.Position{Revision: 20, Ordinal: 1}) {
		t.Fatalf("a resync to %d, next %v", resync, h.Next())
	}
	denial := event(20, "a", core.VerbDenied)
	denial.Ordinal = 1
	h.Publish([]core.Event{denial}, 20)
	if got, resync := h.Read(w, nil, 10); text(got) != "20.1 lock:denied a;" || resync != 0 {
		t.Errorf("got %q, resync %d", text(got), resync)
	}
}

// The ring may pass a watcher that has a short queue but is slow.
func TestOverwrittenIsResync(t *testing.T) {
	h := watch.NewHub(4, 0)
	slow := mustAdd(t, h, watch.Filter{Prefix: "slow"}, 0)
	h.Publish([]core.Event{event(1, "slow", core.VerbAcquired)}, 1)
	past := mustAdd(t, h, watch.Filter{}, 1)
	for rev := uint64(2); rev < 10; rev++ {
		h.Publish([]core.Event{event(rev, "x", core.VerbAcquired)}, rev)
	}
	for _, w := range []*watch.Watcher{slow, past} {
		if got, resync := h.Read(w, nil, 10); len(got) != 0 || resync != 10 {
			t.Errorf("got %q, resync %d", text(got), resync)
		}
	}
}

// After a jump, nobody believes in an unbroken history.
func TestJump(t *testing.T) {
	h := watch.NewHub(0, 0)
	a, b := mustAdd(t, h, watch.Filter{Prefix: "a"}, 0), mustAdd(t, h, watch.Filter{Prefix: "ab"}, 0)
	h.Publish([]core.Event{event(1, "ab", core.VerbAcquired)}, 1)
	if n := len(h.Jump(50)); n != 2 {
		t.Errorf("%d watchers were woken, want 2", n)
	}
	h.Publish([]core.Event{event(51, "ab", core.VerbReleased)}, 51)
	for _, w := range []*watch.Watcher{a, b} {
		if got, resync := h.Read(w, nil, 10); len(got) != 0 || resync != 52 {
			t.Errorf("got %q, resync %d, want a resync to 52", text(got), resync)
		}
	}
	if h.Floor() != 51 {
		t.Errorf("floor %d, want 51", h.Floor())
	}
}

func TestWakesOnce(t *testing.T) {
	h := watch.NewHub(0, 0)
	w := mustAdd(t, h, watch.Filter{}, 0)
	if n := len(h.Publish([]core.Event{event(1, "a", core.VerbAcquired), event(2, "a", core.VerbReleased)}, 2)); n != 1 {
		t.Errorf("two events woke %d times", n)
	}
	if n := len(h.Publish([]core.Event{event(3, "a", core.VerbAcquired)}, 3)); n != 0 {
		t.Errorf("an unread watcher was woken again (%d)", n)
	}
	got, _ := h.Read(w, nil, 2)
	got, _ = h.Read(w, got, 2)
	if len(got) != 3 {
		t.Errorf("got %q", text(got))
	}
	h.Remove(w)
	if n := len(h.Publish([]core.Event{event(4, "a", core.VerbAcquired)}, 4)); n != 0 {
		t.Error("a removed watcher was woken")
	}
}

// Random watchers over random events, against a scan of everything.
func TestAgainstScan(t *testing.T) {
	for seed := range uint64(200) {
		checkSeed(t, seed)
	}
}

type watched struct {
	w    *watch.Watcher
	f    watch.Filter
	got  []core.Event
	from uint64
}

func checkSeed(t *testing.T, seed uint64) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	h := watch.NewHub(1000, 0)
	name := func() string {
		b := make([]byte, r.IntN(4))
		for i := range b {
			b[i] = "ab/"[r.IntN(3)]
		}
		return string(b)
	}
	var all []core.Event
	var ws []*watched
	rev := uint64(0)
	for range 150 {
		switch r.IntN(5) {
		case 0:
			x := &watched{f: watch.Filter{Prefix: name(), Exact: r.IntN(4) == 0}, from: rev + 1}
			if r.IntN(2) == 0 {
				x.from = 1 + r.Uint64N(rev+1)
			}
			x.w = mustAdd(t, h, x.f, x.from)
			ws = append(ws, x)
		case 1:
			if len(ws) > 0 {
				x := ws[r.IntN(len(ws))]
				x.got, _ = h.Read(x.w, x.got, 1+r.IntN(3))
			}
		default:
			rev++
			e := event(rev, name(), core.VerbAcquired)
			all = append(all, e)
			h.Publish([]core.Event{e}, rev)
		}
	}
	for _, x := range ws {
		x.got, _ = h.Read(x.w, x.got, 1000)
		if want := scan(all, x); text(x.got) != want {
			t.Fatalf("seed %d, %+v from %d:\n got %q\nwant %q", seed, x.f, x.from, text(x.got), want)
		}
	}
}

func scan(all []core.Event, x *watched) string {
	return text(slices.DeleteFunc(slices.Clone(all), func(e core.Event) bool {
		fits := strings.HasPrefix(e.Name, x.f.Prefix) && (!x.f.Exact || e.Name == x.f.Prefix)
		return e.Revision < x.from || !fits
	}))
}

func ExampleHub() {
	h := watch.NewHub(0, 0)
	w, first, _ := h.Add(watch.Filter{Prefix: "jobs/", Patterns: []string{"lock:*"}}, 0)
	fmt.Println("from revision", first)

	for range h.Publish([]core.Event{
		{Revision: 1, Kind: core.EventLock, Verb: core.VerbAcquired, Name: "jobs/nightly"},
		{Revision: 2, Kind: core.EventKV, Verb: core.VerbPut, Name: "jobs/last"},
	}, 2) {
		events, _ := h.Read(w, nil, 10)
		for _, e := range events {
			fmt.Printf("%s:%s %s at %d\n", e.Kind, e.Verb, e.Name, e.Revision)
		}
	}
	// Output:
	// from revision 1
	// lock:acquired jobs/nightly at 1
}

func BenchmarkPublish1000Watchers(b *testing.B) {
	h := watch.NewHub(0, 0)
	for range 1000 {
		if _, _, err := h.Add(watch.Filter{Prefix: "k", Exact: true}, 0); err != nil {
			b.Fatal(err)
		}
	}
	e := []core.Event{event(1, "k", core.VerbAcquired)}
	var buf []core.Event
	for b.Loop() {
		e[0].Revision++
		for _, w := range h.Publish(e, e[0].Revision) {
			buf, _ = h.Read(w, buf[:0], 16)
		}
	}
}
