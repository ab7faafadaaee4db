package gateway

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/host"
	"github.com/holdfast-io/holdfast/internal/node/replica"
	"github.com/holdfast-io/holdfast/internal/node/storage"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
	"github.com/holdfast-io/holdfast/server"
)

// stuckDisk is a disk that syncs nothing while it is stuck.
type stuckDisk struct {
	storage.OS
	*sticking
}

type sticking struct {
	stuck sync.RWMutex
	asked chan struct{} // has one once a sync waits
}

func (d stuckDisk) Create(name string) (storage.File, error) { return d.file(d.OS.Create(name)) }
func (d stuckDisk) Open(name string) (storage.File, error)   { return d.file(d.OS.Open(name)) }

func (d stuckDisk) file(f storage.File, err error) (storage.File, error) {
	if err != nil {
		return nil, err
	}
	return stuckFile{f, d.sticking}, nil
}

type stuckFile struct {
	storage.File
	*sticking
}

func (f stuckFile) Sync() error {
	if !f.stuck.TryRLock() {
		select {
		case f.asked <- struct{}{}:
		default:
		}
		f.stuck.RLock()
	}
	defer f.stuck.RUnlock()
	return nil // a test of a busy node need not wait for a slow disk
}

// aloneOn is a gateway of a node with such a disk, which takes so many commands.
func aloneOn(t *testing.T, queue int) (g *Gateway, disk *sticking) {
	t.Helper()
	disk = &sticking{asked: make(chan struct{}, 1)}
	cfg := server.Config{Dir: t.TempDir(), Tick: 20 * time.Millisecond, Limits: server.Limits{Queue: queue}}
	host.Put(&cfg, &host.Host{Files: stuckDisk{sticking: disk}})
	node, err := server.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	g = New(node, label)
	t.Cleanup(func() {
		g.Close()
		node.Close()
	})
	return g, disk
}

// stick has the disk sync nothing until the end of the test.
func (d *sticking) stick(t *testing.T) {
	d.stuck.Lock()
	t.Cleanup(d.stuck.Unlock)
}

// What a leader has proposed when it lost its leadership is given up with its tenure, be it a
// renewal or a change of the members.
func TestIsolated_Renewals(t *testing.T) {
	for what, call := range map[string]func(ctx context.Context, g *Gateway, token uint64, own *lease) error{
		"keep a lease": func(ctx context.Context, g *Gateway, _ uint64, _ *lease) error {
			_, err := g.keepLease(ctx, 41, 0)
			return err
		},
		"renew a hold": func(ctx context.Context, g *Gateway, token uint64, _ *lease) error {
			_, err := g.Renew(ctx, "x", token, 0, core.Mutex)
			return err
		},
		"keep the lease of a grant": func(ctx context.Context, _ *Gateway, _ uint64, own *lease) error {
			return own.keep(ctx, &held{}, 0)
		},
		"change the members": func(ctx context.Context, g *Gateway, _ uint64, _ *lease) error {
			_, err := Admin{Gateway: g}.members(ctx, replica.Change{Check: true})
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			g, disk := aloneOn(t, 0)
			token := taken(t, g)
			own, _, err := g.owner(t.Context(), "x", token, core.Mutex)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			disk.stick(t)
			answer := make(chan error, 1)
			go func() { answer <- call(ctx, g, token, own) }()
			for {
				select {
				case err := <-answer:
					if !errors.Is(err, errIsolated) || !errors.Is(err, driver.ErrUnavailable) {
						t.Error(err)
					}
					return
				case <-time.After(10 * time.Millisecond): // it may have begun by now, or not
					g.tenures.giveUp(g.tenures.current(), errIsolated)
				}
			}
		})
	}
}

// A call that waits hears what there is to hear although the renewal of its lease is not answered.
func TestIsolated_WaitHears(t *testing.T) {
	g, disk := aloneOn(t, 0)
	taken(t, g)
	l := g.newLease("default", holdLease+g.newNumber(), core.Command{Op: core.OpOpen, Namespace: "default", TTL: int64(time.Hour)})
	l.ttl = 30 * time.Millisecond // so often it is renewed, and lives for an hour without
	answer := make(chan error, 1)
	go func() {
		_, err := l.acquire(t.Context(), &holdRequest{want: core.Want{Name: "x", Kind: core.Mutex}})
		answer <- err
	}()
	eventually(t, "the call waits for news", func() bool { return g.waitsForNews() == 1 }) // in the queue it is before
	disk.stick(t)
	select {
	case <-disk.asked: // to sync the renewal of its lease
	case <-time.After(20 * time.Second):
		t.Fatal("its lease is not renewed")
	}
	g.waits.mu.Lock()
	c := g.waits.conn
	g.waits.mu.Unlock()
	c.Close()
	g.waits.closed(c)
	select {
	case err := <-answer:
		if !errors.Is(err, errMoved) {
			t.Errorf("the call that waits is told %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Error("the call that waits is told nothing")
	}
}

// waitsForNews is how many sessions have calls that hear of their claims.
func (g *Gateway) waitsForNews() int {
	g.waits.mu.Lock()
	defer g.waits.mu.Unlock()
	return len(g.waits.waits)
}

// When more calls have to be withdrawn than the node takes at a time, all are.
func TestDrain_MoreThanTheQueueTakes(t *testing.T) {
	const calls = 50
	g, _ := aloneOn(t, 8)
	taken(t, g)
	answers := make(chan error, calls)
	for i := range calls {
		lease := int64(41)
		if i%2 == 0 {
			lease = 0
		}
		go func() {
			_, err := g.hold(t.Context(), core.Want{Name: "x", Kind: core.Mutex}, &pb.Terms{LeaseId: lease})
			answers <- err
		}()
		eventually(t, "a call waits", func() bool { return len(queue(t, g).Waiters) == i+1 })
	}
	drained, release := make(chan struct{}), make(chan struct{})
	go func() { _ = g.s.Look(t.Context(), func(*core.Machine, int64) { <-release }) }() // so that all come at once
	go func() {
		g.Drain(t.Context())
		close(drained)
	}()
	<-time.After(200 * time.Millisecond)
	close(release)
	for range calls {
		if err := <-answers; !notDone(err) {
			t.Errorf("a call that is withdrawn is told %v", err)
		}
	}
	<-drained
	if n := len(queue(t, g).Waiters); n > 0 {
		t.Errorf("%d claims wait after their calls were withdrawn", n)
	}
}

// A call that stands in the queue, and has not heard of it yet, is withdrawn as well: when Drain
// has returned, leadership is handed over, and nobody would.
func TestDrain_CallOnItsWay(t *testing.T) {
	for what, call := range map[string]func(g *Gateway, read uint64) error{
		"lock": func(g *Gateway, _ uint64) error {
			_, err := g.hold(t.Context(), core.Want{Name: "x", Kind: core.RWMutex}, &pb.Terms{})
			return err
		},
		"upgrade": func(g *Gateway, read uint64) error {
			_, err := RWLocks{Gateway: g}.Upgrade(t.Context(), &pb.UpgradeRequest{Name: "x", Token: read})
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			g := alone(t)
			var read held
			var err error
			for range 2 {
				if read, err = g.hold(t.Context(), core.Want{Name: "x", Kind: core.RWMutex, Mode: core.Shared}, &pb.Terms{}); err != nil {
					t.Fatal(err)
				}
			}
			g.waits.mu.Lock() // so that it does not hear
			answer, drained := make(chan error, 1), make(chan struct{})
			go func() { answer <- call(g, read.token) }()
			eventually(t, "the call is in the queue", func() bool { return len(queue(t, g).Waiters) == 1 })
			go func() {
				g.Drain(t.Context())
				close(drained)
			}()
			select {
			case <-drained:
				t.Error("it was not waited for")
			case <-time.After(200 * time.Millisecond):
			}
			g.waits.mu.Unlock()
			if err := <-answer; !notDone(err) {
				t.Errorf("the call is told %v", err)
			}
			<-drained
			if n := len(queue(t, g).Waiters); n > 0 {
				t.Errorf("%d claims wait", n)
			}
		})
	}
}
