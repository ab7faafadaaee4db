package filehold_test

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/filehold"
)

var kills = flag.Int("filehold.kills", 30, "how many processes TestRandomKills kills")

func init() {
	roles["worker"] = work
	roles["worker hostage"] = hostage
	roles["bare"] = workBare
	roles["bare hostage"] = hostageBare
	roles["pair"] = pair
}

// The clocks of the kernel that tests read.
const (
	clockMonotonic  = 1
	clockProcessCPU = 2
)

func readClock(id uintptr) int64 {
	var ts syscall.Timespec
	_, _, _ = syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&ts)), 0)
	return ts.Nano()
}

// clock is the same in all processes, in nanoseconds.
func clock() int64 { return readClock(clockMonotonic) }

// untilToldToStop is a context that ends with standard input.
func untilToldToStop() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = bufio.NewReader(os.Stdin).ReadByte()
		cancel()
	}()
	return ctx
}

// report holds what was granted for a moment and tells when it had it: from
// after the grant to before the release, so never more than the truth.
func report(name string, h *holdfast.Hold, err error, moment time.Duration) error {
	if err != nil {
		return err
	}
	stay(name, uint64(h.Token()), moment)
	return h.Release()
}

func stay(name string, token uint64, moment time.Duration) {
	fmt.Printf("A %s %d %d\n", name, token, clock())
	for start := time.Now(); time.Since(start) < moment; {
		<-time.After(moment / 4)
	}
	fmt.Printf("R %s %d %d\n", name, token, clock())
}

const (
	locksInUse = 3
	semLimit   = 4
)

// work takes locks and permits and counts, at random, until it is killed or told
// to stop.
func work(dir string) error {
	ctx := untilToldToStop()
	s, err := filehold.Open(dir)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		if err = workOnce(ctx, s); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return s.Close()
}

// aMoment is how long something is held.
func aMoment() time.Duration { return time.Duration(rand.IntN(400)) * time.Microsecond }

func workOnce(ctx context.Context, s *holdfast.Space) error {
	moment := aMoment()
	switch rand.IntN(3) {
	case 0:
		name := fmt.Sprint("lock", rand.IntN(locksInUse))
		h, err := s.Mutex(name).Acquire(ctx)
		return report(name, h, err, moment)
	case 1:
		weight := 1 + rand.Int64N(2)
		h, err := s.Semaphore("sem", semLimit).Acquire(ctx, weight)
		return report(fmt.Sprint("sem", weight), h, err, moment)
	default:
		n, err := s.Counter("count").Add(ctx, 1)
		if err == nil {
			fmt.Printf("C count %d %d\n", n, clock())
		}
		return err
	}
}

// hostage takes a lock and keeps it until it is killed.
func hostage(dir string) error {
	ctx := untilToldToStop()
	s, err := filehold.Open(dir)
	if err != nil {
		return err
	}
	h, err := s.Mutex("lock0").Acquire(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("A lock0 %d %d\n", h.Token(), clock())
	<-ctx.Done()
	return h.Release()
}

// hostageBare does the same with a bare flock.
func hostageBare(dir string) error {
	ctx := untilToldToStop()
	f, err := os.OpenFile(filepath.Join(dir, "lock0"), os.O_RDWR|os.O_CREATE, 0o666)
	if err == nil {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		return err
	}
	fmt.Printf("A lock0 %d %d\n", clock(), clock())
	<-ctx.Done()
	return f.Close()
}

// workBare does as much with the kernel alone: a bare flock for a lock, and an
// append that is put on disk for the rest.
func workBare(dir string) error {
	ctx := untilToldToStop()
	for ctx.Err() == nil {
		name := fmt.Sprint("lock", rand.IntN(locksInUse))
		if rand.IntN(3) != 0 {
			name = fmt.Sprint("appended", os.Getpid())
		}
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o666)
		if err != nil {
			return err
		}
		if strings.HasPrefix(name, "lock") {
			if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err == nil {
				stay(name, uint64(clock()), aMoment())
			}
		} else if _, err = f.Write(make([]byte, 80)); err == nil {
			err = syscall.Fdatasync(int(f.Fd()))
			fmt.Printf("C %s 0 %d\n", name, clock())
		}
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// pair hands one lock to and fro.
func pair(dir string) error {
	ctx := untilToldToStop()
	s, err := filehold.Open(dir)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		h, err := s.Mutex("pair").Acquire(ctx)
		if err := report("pair", h, err, 300*time.Microsecond); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return s.Close()
}

// span is a time in which a process surely held something.
type span struct {
	name       string
	token      uint64
	worker     int
	start, end int64
}

// journal collects what workers say.
type journal struct {
	mu     sync.Mutex
	open   map[uint64]*span // by token
	spans  []*span
	counts []uint64
	bad    []string
}

// listen reads a worker's lines until it is gone.
func (j *journal) listen(worker int, p *process) {
	last := ""
	for p.out.Scan() {
		if last != "" {
			j.failed(last)
		}
		var what, name string
		var n uint64
		var at int64
		if _, err := fmt.Sscan(p.out.Text(), &what, &name, &n, &at); err != nil {
			last = p.out.Text()
			continue
		}
		last = ""
		j.note(what, span{name: name, token: n, worker: worker, start: at})
	}
	if last != "" && !begun.MatchString(last) {
		j.failed(last)
	}
}

// begun is the beginning of a line: a worker that is killed may have written no more.
var begun = regexp.MustCompile(`^[A-Z]( [\w./-]*( \d*){0,2})?$`)

func (j *journal) failed(line string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.bad = append(j.bad, line)
}

func (j *journal) note(what string, s span) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch what {
	case "A":
		j.open[s.token] = &s
		j.spans = append(j.spans, &s)
	case "R":
		if held := j.open[s.token]; held != nil {
			held.end = s.start
			delete(j.open, s.token)
		}
	case "C":
		j.counts = append(j.counts, s.token)
	}
}

// died ends what a worker held at the time at which it was killed.
func (j *journal) died(worker int, at int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for token, s := range j.open {
		if s.worker == worker {
			s.end = max(at, s.start)
			delete(j.open, token)
		}
	}
}

// holding is a worker that holds a lock now, if there is one.
func (j *journal) holding() (worker int, ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, s := range j.open {
		if strings.HasPrefix(s.name, "lock") {
			return s.worker, true
		}
	}
	return 0, false
}

// holds reports whether a worker holds something now.
func (j *journal) holds(worker int) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, s := range j.open {
		if s.worker == worker {
			return true
		}
	}
	return false
}

// crew is the workers of a run.
type crew struct {
	t       *testing.T
	dir     string
	role    string
	j       *journal
	members map[int]*process
	hired   int
	ears    sync.WaitGroup
}

func newCrew(t *testing.T, dir, role string, n int) *crew {
	c := &crew{t: t, dir: dir, role: role, j: &journal{open: map[uint64]*span{}}, members: map[int]*process{}}
	for range n {
		c.hire(role)
	}
	return c
}

func (c *crew) hire(role string) (id int) {
	c.hired++
	id = c.hired
	p := spawn(c.t, role, c.dir)
	c.members[id] = p
	c.ears.Go(func() { c.j.listen(id, p) })
	return id
}

// death is when a worker was killed, and when it was gone.
type death struct {
	worker   int
	at, gone int64
}

// kill kills a worker.
func (c *crew) kill(id int) death {
	p := c.members[id]
	delete(c.members, id)
	d := death{worker: id, at: clock()}
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
	d.gone = clock()
	c.j.died(id, d.at)
	return d
}

// victim is a holder of something, every other time.
func (c *crew) victim() int {
	if id, ok := c.j.holding(); ok && c.members[id] != nil && rand.IntN(2) == 0 {
		return id
	}
	ids := make([]int, 0, len(c.members))
	for id := range c.members {
		ids = append(ids, id)
	}
	return ids[rand.IntN(len(ids))]
}

// dismiss tells everybody to stop, and waits.
func (c *crew) dismiss() {
	for _, p := range c.members {
		_ = p.in.Close()
	}
	c.ears.Wait()
	for id, p := range c.members {
		if err := p.cmd.Wait(); err != nil {
			c.t.Errorf("worker %d: %v", id, err)
		}
	}
	if len(c.j.bad) > 0 {
		c.t.Errorf("workers failed: %q", c.j.bad)
	}
}

// TestRandomKills has 32 processes use locks, a semaphore and a counter, and
// kills them at random: never two hold a lock, never more than the limit is
// out, no token comes twice and no count is lost.
func TestRandomKills(t *testing.T) {
	dir := t.TempDir()
	c := newCrew(t, dir, "worker", 32)
	killed := c.killSome(*kills)
	c.dismiss()
	c.j.check(t)
	c.j.checkCounts(t, space(t, dir), *kills)
	t.Logf("proof: %d kills among 32 processes, %d holds, %d counts: no two holders, no permit too many, no token twice, no count lost",
		*kills, len(c.j.spans), len(c.j.counts))
	bare := newCrew(t, t.TempDir(), "bare", 32)
	killedBare := bare.killSome(max(*kills/3, 10))
	bare.dismiss()
	t.Logf("proof: among 32 processes a lock whose holder was killed is held by the next after %s", c.j.freed(killed))
	t.Logf("proof: with bare flocks and appends instead after %s", bare.j.freed(killedBare))
}

// killSome kills n workers while they work, and hires others. Every third is one
// that surely holds a lock for which somebody waits: those deaths it returns.
func (c *crew) killSome(n int) (list []death) {
	for i := range n {
		before := c.j.events()
		eventually(c.t, "the workers do nothing", func() bool { return c.j.events() > before+20 })
		if i%3 == 0 {
			list = append(list, c.killHostage())
			continue
		}
		c.kill(c.victim())
		c.hire(c.role)
	}
	return list
}

// killHostage kills a process that holds a lock for which somebody waits.
func (c *crew) killHostage() death {
	id := c.hire(c.role + " hostage")
	eventually(c.t, "the hostage does not get its lock", func() bool { return c.j.holds(id) })
	path := filepath.Join(c.dir, "lock0")
	if c.role != "bare" {
		path = filepath.Join(c.dir, filehold.FileName("lock0"))
	}
	eventually(c.t, "nobody waits for the hostage", func() bool { return waitedFor(c.t, path) })
	return c.kill(id)
}

func (j *journal) events() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.spans) + len(j.counts)
}

// check looks for what must not be.
func (j *journal) check(t *testing.T) {
	tokens := map[string]map[uint64]bool{}
	byName := map[string][]*span{}
	for _, s := range j.spans {
		name := strings.TrimRight(s.name, "0123456789")
		if name == "lock" {
			name = s.name
		}
		if tokens[name] == nil {
			tokens[name] = map[uint64]bool{}
		}
		if tokens[name][s.token] {
			t.Errorf("%s: the token %d was given twice", name, s.token)
		}
		tokens[name][s.token] = true
		byName[name] = append(byName[name], s)
	}
	for name, spans := range byName {
		limit := int64(1)
		if name == "sem" {
			limit = semLimit
		}
		checkLoad(t, name, spans, limit)
	}
}

// checkLoad adds up the holders at each moment.
func checkLoad(t *testing.T, name string, spans []*span, limit int64) {
	type edge struct {
		at    int64
		delta int64
	}
	var edges []edge
	for _, s := range spans {
		weight := int64(1)
		if s.name == "sem2" {
			weight = 2
		}
		edges = append(edges, edge{s.start, weight}, edge{s.end, -weight})
	}
	slices.SortFunc(edges, func(a, b edge) int {
		if a.at != b.at {
			return int(a.at - b.at)
		}
		return int(a.delta - b.delta)
	})
	load := int64(0)
	for _, e := range edges {
		if load += e.delta; load > limit {
			t.Fatalf("%s: %d are inside at once, of %d", name, load, limit)
		}
	}
	if name != "sem" {
		checkOrder(t, name, spans)
	}
}

// checkOrder: a later holder has the greater token.
func checkOrder(t *testing.T, name string, spans []*span) {
	slices.SortFunc(spans, func(a, b *span) int { return int(a.start - b.start) })
	for i := range spans[1:] {
		if spans[i+1].token <= spans[i].token {
			t.Errorf("%s: the token %d came after %d", name, spans[i+1].token, spans[i].token)
		}
	}
}

// checkCounts: every count that was told is in the sum, and no other but those
// of workers that were killed before they could tell.
func (j *journal) checkCounts(t *testing.T, s *holdfast.Space, killed int) {
	n, err := s.Counter("count").Load(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	told := len(slices.Compact(slices.Sorted(slices.Values(j.counts))))
	if told != len(j.counts) || int(n) < told || int(n) > told+killed+32 {
		t.Errorf("%d counts were told, %d different ones, and the sum is %d", len(j.counts), told, n)
	}
}

// freed tells the times from the kill of a holder to the next one's grant, and
// what of it came after the kernel was done with the dead.
func (j *journal) freed(killed []death) string {
	var all, gone, rest []time.Duration
	for _, d := range killed {
		i := slices.IndexFunc(j.spans, func(s *span) bool { return s.worker == d.worker })
		next := j.next(j.spans[i])
		all = append(all, time.Duration(next.start-d.at))
		gone = append(gone, time.Duration(d.gone-d.at))
		rest = append(rest, time.Duration(max(0, next.start-d.gone)))
	}
	return fmt.Sprintf("%s; the process was gone after %s, the lock held by the next %s later", spread(all), spread(gone), spread(rest))
}

// next is the holder of the name after s.
func (j *journal) next(s *span) *span {
	var next *span
	for _, n := range j.spans {
		if n.name == s.name && n.token > s.token && (next == nil || n.token < next.token) {
			next = n
		}
	}
	return next
}

func percentile(list []time.Duration, p int) time.Duration {
	sorted := slices.Sorted(slices.Values(list))
	return sorted[min(len(sorted)*p/100, len(sorted)-1)].Round(time.Microsecond)
}

// spread tells the middle and the end of a list.
func spread(list []time.Duration) string {
	if len(list) == 0 {
		return "a time that was not seen"
	}
	return fmt.Sprintf("%s (median of %d), %s (99 %%)", percentile(list, 50), len(list), percentile(list, 99))
}

// TestHandOver measures how long a lock takes from one process to another that
// waits for it.
func TestHandOver(t *testing.T) {
	c := newCrew(t, t.TempDir(), "pair", 2)
	eventually(t, "the workers do nothing", func() bool { return c.j.events() > 500 })
	c.dismiss()
	c.j.check(t)
	var list []time.Duration
	for i, s := range c.j.spans[1:] {
		if before := c.j.spans[i]; before.worker != s.worker && before.end > 0 && s.start > before.end {
			list = append(list, time.Duration(s.start-before.end))
		}
	}
	if len(list) == 0 {
		t.Fatal("the lock never changed hands")
	}
	t.Logf("proof: a lock goes from one process to another that waits in %s", spread(list))
}
