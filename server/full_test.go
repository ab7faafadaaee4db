package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/host"
	"github.com/holdfast-io/holdfast/internal/node/storage"
	"github.com/holdfast-io/holdfast/server"
)

// cramped is a disk that can be full to the last byte, and slow.
type cramped struct {
	storage.OS
	full atomic.Bool
	slow atomic.Int64 // ns, of each sync
}

func (c *cramped) Free(string) (int64, error) {
	if c.full.Load() {
		return 0, nil
	}
	return 1 << 40, nil
}

func (c *cramped) Create(name string) (storage.File, error) {
	if c.full.Load() {
		return nil, fmt.Errorf("create %s: %w", name, syscall.ENOSPC)
	}
	f, err := c.OS.Create(name)
	return crampedFile{f, c}, err
}

func (c *cramped) Open(name string) (storage.File, error) {
	f, err := c.OS.Open(name)
	return crampedFile{f, c}, err
}

type crampedFile struct {
	storage.File
	c *cramped
}

func (f crampedFile) WriteAt(b []byte, off int64) (int, error) {
	if size, err := f.Size(); f.c.full.Load() && (err != nil || off+int64(len(b)) > size) {
		return 0, syscall.ENOSPC
	}
	return f.File.WriteAt(b, off)
}

func (f crampedFile) Sync() error {
	time.Sleep(time.Duration(f.c.slow.Load()))
	return f.File.Sync()
}

// crampedGroup is a group with disks that can be full, for a bubble of fake time.
func crampedGroup(t *testing.T, n int, change ...func(*server.Config)) (*group, []*cramped) {
	t.Helper()
	g := &group{t: t, cfgs: founderConfigs(t, n)}
	var disks []*cramped
	wires := &host.Pipes{}
	for i := range g.cfgs {
		d := &cramped{}
		g.cfgs[i].Tick, g.cfgs[i].MinTTL = 100*time.Millisecond, time.Second
		host.Put(&g.cfgs[i], &host.Host{Files: d, SegmentSize: 256 << 10, Listen: wires.Listen, Dial: wires.Dial})
		for _, f := range change {
			f(&g.cfgs[i])
		}
		disks = append(disks, d)
		g.nodes = append(g.nodes, start(t, g.cfgs[i]))
	}
	return g, disks
}

// space is one on the leader.
func (g *group) space(at int) *holdfast.Space {
	g.t.Helper()
	s, err := g.nodes[at].Space()
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { s.Close() })
	return s
}

// On a full disk releases, keepalives, the ends of sessions and reads go on, and nothing
// else; within a second of room everything does.
func TestFullDisk(t *testing.T) {
	for name, nodes := range map[string]int{"alone": 1, "leader": 3, "follower": 3, "all": 3} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { fillDisk(t, name, nodes) })
		})
	}
}

func fillDisk(t *testing.T, name string, nodes int) {
	g, disks := crampedGroup(t, nodes)
	at := g.leader()
	s := g.space(at)
	before := occupy(t, s)
	for i, d := range disks {
		d.full.Store(name == "all" || (i == at) == (name != "follower"))
	}
	if name == "follower" {
		before.goesOn(t, s)
	} else {
		before.refused(t, s)
	}
	before.freed(t, s)
	late := g.space(at)
	if _, err := late.Counter("n").Load(within(t)); err != nil {
		t.Errorf("%s full: a read of a client that comes now: %v", name, err)
	}
	if _, err := late.KV().Delete(within(t), "k"); err != nil {
		t.Errorf("%s full: a deletion of a client that comes now: %v", name, err)
	}
	for _, d := range disks {
		d.full.Store(false)
	}
	before.backBy(t, s, time.Now().Add(time.Second)) // by the clock of the bubble
	for i, n := range g.nodes {
		if err := n.Err(); err != nil {
			t.Errorf("node %d has stopped: %v", i+1, err)
		}
	}
}

// A backup from a node with a full disk says so, as soon as that is known, and leaves the node as it was.
func TestBackupOnAFullDisk(t *testing.T) { synctest.Test(t, backUpFull) }

func backUpFull(t *testing.T) {
	g, disks := crampedGroup(t, 1)
	node := g.nodes[g.leader()]
	if _, err := g.space(0).KV().Put(within(t), "k", []byte("v")); err != nil {
		t.Fatal(err)
	}
	disks[0].full.Store(true)
	for range 2 { // the second comes while the node waits before it tries again
		if err := node.Backup(within(t), io.Discard); !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "no room for a snapshot") {
			t.Errorf("a backup without room: %v", err)
		}
	}
	disks[0].full.Store(false)
	if err := node.Backup(within(t), io.Discard); err != nil {
		t.Errorf("a backup with room again: %v", err)
	}
}

// A leader on a full disk hands over when the others have room: growth goes on, and the lead stays there.
func TestFullLeaderHandsOver(t *testing.T) { synctest.Test(t, relieve) }

func relieve(t *testing.T) {
	g, disks := crampedGroup(t, 3)
	at := g.leader()
	s := g.space(at)
	p := occupy(t, s)
	disks[at].full.Store(true)
	p.refused(t, s)
	g.until("another node leads", func(context.Context) bool {
		time.Sleep(100 * time.Millisecond)
		return g.leader() != at
	})
	next := g.leader()
	p.goesOn(t, g.space(next))
	time.Sleep(time.Minute)
	if now := g.leader(); now != next {
		t.Errorf("node %d led, a minute later it is node %d", next+1, now+1)
	}
}

// A node that starts on a full disk refuses growth from its first answer on.
func TestFullDiskAtStart(t *testing.T) { synctest.Test(t, startFull) }

func startFull(t *testing.T) {
	g, disks := crampedGroup(t, 1)
	g.leader()
	for i := range 3 { // each start must look by itself
		if err := g.nodes[0].Close(); err != nil {
			t.Fatal(err)
		}
		disks[0].full.Store(true)
		g.nodes[0] = start(t, g.cfgs[0])
		if st, err := g.nodes[0].Status(within(t)); err != nil || !st.Full {
			t.Errorf("the status at start %d is %+v, %v", i+1, st, err)
		}
		_, err := g.space(g.leader()).KV().Put(within(t), "k", nil)
		wantFull(t, fmt.Sprintf("the first key after start %d", i+1), err)
	}
}

// The operator hears of a full disk, and of its end; the status tells it meanwhile.
func TestFullDiskIsTold(t *testing.T) { synctest.Test(t, tellFullDisk) }

func tellFullDisk(t *testing.T) {
	var notices chan string
	g, disks := crampedGroup(t, 1, func(cfg *server.Config) { *cfg, notices = noticed(*cfg) })
	for i, text := range []string{"is nearly full: less of it is free than --reserve, or the data takes --max-data (0.0 MiB of the disk are free, ", "has room again"} {
		disks[0].full.Store(i == 0)
		hear(t, notices, "the disk of "+g.cfgs[0].Dir+" "+text)
		if st, err := g.nodes[0].Status(within(t)); err != nil || st.Full != (i == 0) {
			t.Errorf("told that it %s, its status is %+v, %v", text, st, err)
		}
	}
}

// possessions are what was there before the disk was full.
type possessions struct {
	kept, given *holdfast.Hold
	session     *holdfast.Session
}

func occupy(t *testing.T, s *holdfast.Space) *possessions {
	t.Helper()
	p := &possessions{}
	var err error
	if p.kept, err = s.Mutex("kept", holdfast.TTL(time.Second)).Acquire(within(t)); err != nil {
		t.Fatal(err)
	}
	if p.given, err = s.Mutex("given").Acquire(within(t)); err != nil {
		t.Fatal(err)
	}
	if p.session, err = s.Session(within(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Counter("n").Add(within(t), 5); err != nil {
		t.Fatal(err)
	}
	return p
}

// refused waits until nothing new is taken, and says so.
func (p *possessions) refused(t *testing.T, s *holdfast.Space) {
	t.Helper()
	var err error
	for i := 0; err == nil && i < 100; i++ { // which the node looks at now and then
		_, err = s.Mutex(fmt.Sprint("new", i)).TryAcquire(within(t))
		time.Sleep(100 * time.Millisecond)
	}
	wantFull(t, "a lock", err)
	_, err = s.Counter("n").Add(within(t), 1)
	wantFull(t, "a count", err)
	_, err = s.KV().Put(within(t), "k", []byte("v"))
	wantFull(t, "a key", err)
	_, err = s.Session(within(t))
	wantFull(t, "a session", err)
}

func wantFull(t *testing.T, what string, err error) {
	t.Helper()
	e, ok := errors.AsType[*holdfast.Error](err)
	if !ok || !errors.Is(err, holdfast.ErrExhausted) || !holdfast.NotDone(err) || e.RetryAfter != time.Second {
		t.Errorf("%s on a full disk: %v (%+v)", what, err, e)
	}
}

// goesOn expects everything to be taken.
func (p *possessions) goesOn(t *testing.T, s *holdfast.Space) {
	t.Helper()
	for i := range 50 { // and snapshots, which the others have no room for
		if _, err := s.KV().Put(within(t), fmt.Sprint("k", i), []byte("v")); err != nil {
			t.Fatal(err)
		}
	}
}

// freed gives back and reads on a full disk, and lives through several TTLs.
func (p *possessions) freed(t *testing.T, s *holdfast.Space) {
	t.Helper()
	if n, err := s.Counter("n").Load(within(t)); err != nil || n != 5 {
		t.Errorf("a read on a full disk: %d, %v", n, err)
	}
	if err := p.given.Release(); err != nil {
		t.Errorf("a release on a full disk: %v", err)
	}
	if err := p.session.Revoke(); err != nil {
		t.Errorf("the end of a session on a full disk: %v", err)
	}
	select {
	case <-time.After(3 * time.Second):
	case <-p.kept.Done():
		t.Errorf("a hold was lost on a full disk: %v", p.kept.Err())
	}
}

// backBy expects everything to be taken by then.
func (p *possessions) backBy(t *testing.T, s *holdfast.Space, then time.Time) {
	t.Helper()
	ctx, cancel := context.WithDeadline(t.Context(), then)
	defer cancel()
	_, err := s.Mutex("after").TryAcquire(ctx)
	for err != nil && errors.Is(err, holdfast.ErrExhausted) && ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond)
		_, err = s.Mutex("after").TryAcquire(ctx)
	}
	if err != nil {
		t.Errorf("a second after there was room: %v", err)
	}
	if err := p.kept.Release(); err != nil {
		t.Errorf("what was held all the time: %v", err)
	}
}

// A node whose log finds no room waits for it, and goes on where it was.
func TestLogWithoutRoom(t *testing.T) { synctest.Test(t, fillLog) }

func fillLog(t *testing.T) {
	g, disks := crampedGroup(t, 1, func(c *server.Config) { c.Reserve = -1 }) // nothing is refused in time
	s := g.space(g.leader())
	disks[0].full.Store(true)
	put := func(ctx context.Context) error {
		_, err := s.KV().Put(ctx, "k", make([]byte, 8<<10))
		return err
	}
	n := 0
	for {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		err := put(ctx)
		cancel()
		if err != nil {
			break
		}
		n++
	}
	if n < 5 || n > 64 {
		t.Errorf("%d writes of 8 KiB found room in a segment of 256 KiB", n)
	}
	if err := g.nodes[0].Err(); err != nil {
		t.Fatalf("it has stopped: %v", err)
	}
	disks[0].full.Store(false)
	if err := put(within(t)); err != nil {
		t.Error(err)
	}
}

// A leader whose disk is slower than an election hands over to another, which serves.
func TestSlowDisk(t *testing.T) { synctest.Test(t, slowDown) }

func slowDown(t *testing.T) {
	g, disks := crampedGroup(t, 3)
	at := g.leader()
	disks[at].slow.Store(int64(3 * time.Second))
	ctx, s := within(t), g.space(at)
	go s.Counter("n").Add(ctx, 1)
	for {
		st, err := g.nodes[at].Status(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if st.Leader != 0 && st.Leader != uint64(at+1) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	next := g.leader()
	if _, err := g.space(next).Counter("m").Add(ctx, 1); err != nil || next == at {
		t.Errorf("node %d, which leads now: %v", next+1, err)
	}
	disks[at].slow.Store(0)
}

// A node with data that has taken its share refuses growth while it runs, and says in numbers why. Once keys were deleted, growth goes on by itself.
func TestMaxData(t *testing.T) { synctest.Test(t, fillShare) }

func fillShare(t *testing.T) {
	told := make(chan string, 1000)
	g, _ := crampedGroup(t, 1, func(c *server.Config) {
		c.SoftLimit, c.Notice = 2<<20, func(err error) { told <- err.Error() }
	})
	s := g.space(g.leader())
	before := occupy(t, s)
	put := func(i int) error {
		_, err := s.KV().Put(within(t), fmt.Sprint("k", i), make([]byte, 8<<10))
		return err
	}
	n := 0
	for ; put(n) == nil; n++ {
		if n > 1000 {
			t.Fatal("8 MiB are taken, of 2")
		}
	}
	before.refused(t, s)
	hear(t, told, "and may take 2.0 MiB")
	if st, err := g.nodes[0].Status(within(t)); err != nil || !st.Full {
		t.Errorf("its status is %+v, %v", st, err)
	}
	before.freed(t, s)
	for i := range n {
		if _, err := s.KV().Delete(within(t), fmt.Sprint("k", i)); err != nil {
			t.Fatal(err)
		}
	}
	before.backBy(t, s, time.Now().Add(time.Second))
	if err := put(0); err != nil {
		t.Errorf("when the keys are gone, a key: %v", err)
	}
}

// A follower with a disk that was full to the last byte has caught up within seconds of room, with what the others have written meanwhile.
func TestFullFollowerCatchesUp(t *testing.T) { synctest.Test(t, catchUp) }

func catchUp(t *testing.T) {
	g, disks := crampedGroup(t, 3)
	at := g.leader()
	s := g.space(at)
	follower := (at + 1) % 3
	disks[follower].full.Store(true)
	for i := range 100 {
		if _, err := s.KV().Put(within(t), fmt.Sprint("k", i), make([]byte, 8<<10)); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(3 * time.Second) // of the bubble: for what still has room
	behind := func() bool {
		mine, err1 := g.nodes[follower].Status(within(t))
		its, err2 := g.nodes[g.leader()].Status(within(t))
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		return mine.Applied < its.Applied
	}
	if !behind() {
		t.Fatal("a disk without room does not hold the follower up")
	}
	disks[follower].full.Store(false)
	for room := time.Now(); behind(); time.Sleep(10 * time.Millisecond) {
		if time.Since(room) > 3*time.Second {
			t.Fatal("three seconds after there was room it has not caught up")
		}
	}
	g.sameState()
}
