package redishold_test

import (
	"context"
	"errors"
	"io/fs"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/drivertest"
	"github.com/holdfast-io/holdfast/internal/services"
	"github.com/holdfast-io/holdfast/limit"
)

// suite runs what of the conformance suite needs no link of its own.
func suite(t *testing.T, rawURL string) {
	h := drivertest.URL(rawURL)
	h.TTL = 3 * time.Second // as in TestConformance
	h.Require = []driver.Feature{driver.FeatureFIFO}
	drivertest.Run(t, h)
}

// with adds parameters to a URL.
func with(rawURL string, params ...string) string {
	u, _ := url.Parse(rawURL)
	q := u.Query()
	for i := 0; i < len(params); i += 2 {
		q.Add(params[i], params[i+1])
	}
	u.RawQuery = q.Encode()
	return u.String()
}

// TestTLS: rediss:// with an authority of one's own, and with a certificate of
// the client's where the server asks for it.
func TestTLS(t *testing.T) {
	server := services.Redis(t, services.TLS())
	trusting := with(server.URL(), "holdfast_tls_ca", server.Certs().CA)
	t.Run("suite", func(t *testing.T) { suite(t, trusting) })
	if _, err := holdfast.Open(t.Context(), server.URL()); !errors.Is(err, holdfast.ErrUnavailable) {
		t.Errorf("a server whose authority nobody knows: %v", err)
	}
	elsewhere := services.Proxy(t, server.Addr()) // another port is the same name
	open(t, elsewhere.URL(trusting))

	strict := services.Redis(t, services.TLS(), services.Setting("tls-auth-clients", "yes"))
	c := strict.Certs()
	if _, err := holdfast.Open(t.Context(), with(strict.URL(), "holdfast_tls_ca", c.CA)); err == nil {
		t.Error("a server that asks for a certificate took a client without one")
	}
	s := open(t, with(strict.URL(), "holdfast_tls_ca", c.CA, "holdfast_tls_cert", c.Cert, "holdfast_tls_key", c.Key))
	if _, err := s.Mutex("m").TryAcquire(t.Context()); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{
		with("redis://h", "holdfast_tls_ca", c.CA), with(strict.URL(), "holdfast_tls_ca", c.Key), with(strict.URL(), "holdfast_tls_ca", c.CA+"x"),
		with(strict.URL(), "holdfast_tls_cert", c.Cert), with(strict.URL(), "holdfast_tls_cert", c.CA, "holdfast_tls_key", c.Key),
		with(strict.URL(), "holdfast_tls_nonsense", "1"),
	} {
		if _, err := driver.Open(t.Context(), bad); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// TestCluster: a Space is in one slot, wherever that is, and the client finds
// it from any node.
func TestCluster(t *testing.T) {
	nodes := services.RedisCluster(t, 3)
	address := with(nodes[0].URL(), "addr", nodes[1].Addr(), "addr", nodes[2].Addr())
	t.Run("suite", func(t *testing.T) { suite(t, address) })
	if open(t, address).Info().Features[driver.FeatureLostFirst] {
		t.Error("a cluster declares lost-first, although a failover may forget a grant")
	}
	used := map[string]bool{}
	for _, prefix := range []string{"a", "b", "c", "d", "e", "f"} {
		var spaces []*holdfast.Space
		for i := range nodes { // a client that begins at another node sees the same
			next := with(nodes[i].URL(), "addr", nodes[(i+1)%3].Addr(), "holdfast_prefix", prefix)
			spaces = append(spaces, open(t, next))
		}
		hold, err := spaces[0].Mutex("m").TryAcquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range spaces[1:] {
			if _, err := s.Mutex("m").TryAcquire(t.Context()); !errors.Is(err, holdfast.ErrHeld) {
				t.Errorf("prefix %s, by another node: %v", prefix, err)
			}
		}
		if err := hold.Release(); err != nil {
			t.Error(err)
		}
		for _, n := range nodes {
			if do(t, admin(t, n.URL()), "DBSIZE") != "0" {
				used[n.Addr()] = true
			}
		}
	}
	if len(used) < 2 {
		t.Errorf("six prefixes use the nodes %v only", used)
	}
}

// TestClusterMovesASlot: a hold stays when its slot goes to another node, and
// nothing is granted while its keys are on the way: a script that is sent to the
// new node would not find them there.
func TestClusterMovesASlot(t *testing.T) {
	t.Parallel()
	nodes := services.RedisCluster(t, 2)
	address := with(nodes[0].URL(), "addr", nodes[1].Addr())
	s, newcomer := open(t, address), open(t, address)
	first := soLong(t, func() (*holdfast.Hold, error) {
		return s.Mutex("m", holdfast.TTL(9*time.Second)).Acquire(t.Context()) // a busy machine moves it in that time
	})
	services.MoveSlot(t, nodes, "{holdfast}:", func() {
		for _, name := range []string{"m", "other"} {
			brief, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			if h, err := newcomer.Mutex(name).TryAcquire(brief); err == nil {
				t.Errorf("%s was granted while the slot moves, with the token %d after %d", name, h.Token(), first.Token())
			}
			cancel()
		}
	})
	if _, err := s.Mutex("m").TryAcquire(t.Context()); !errors.Is(err, holdfast.ErrHeld) {
		t.Errorf("after the slot moved another has the lock: %v", err)
	}
	got := make(chan error, 1)
	go func() {
		h, err := s.Mutex("m").Acquire(context.Background())
		if err == nil && h.Token() <= first.Token() {
			err = errors.New("the token did not grow")
		}
		got <- err
	}()
	moved, _ := first.Deadline()
	eventually(t, "the hold is not renewed at the new place", func() bool {
		now, _ := first.Deadline()
		return now.After(moved) || first.Err() != nil
	})
	if err := first.Err(); err != nil {
		t.Errorf("the hold ended with the move: %v", err)
	}
	if err := first.Release(); err != nil {
		t.Error(err)
	}
	if err := <-got; err != nil {
		t.Error(err)
	}
}

// TestClusterMovesALimiter: what a key has used counts while its slot goes to another node, where nobody begins anew, and
// afterwards.
func TestClusterMovesALimiter(t *testing.T) {
	t.Parallel()
	nodes := services.RedisCluster(t, 2)
	s := open(t, with(nodes[0].URL(), "addr", nodes[1].Addr()))
	l := s.Limiter("l", limit.Rate{Count: 5, Per: time.Hour})
	allowed, unsure := map[string]int{}, map[string]int{}
	ask := func(key string) (err error) {
		brief, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		d, err := l.Allow(brief, key)
		if d.Allowed {
			allowed[key]++
		} else if err != nil {
			unsure[key]++
		}
		return err
	}
	for range 2 {
		if err := ask("used"); err != nil {
			t.Fatal(err)
		}
	}
	services.MoveSlot(t, nodes, "{holdfast}:", func() {
		for range 2 {
			_ = ask("used") // may be refused, as all that needs more than is there
			_ = ask("new")
		}
	})
	for _, key := range []string{"used", "new"} {
		eventually(t, "the limiter does not answer at the new place", func() bool { return ask(key) == nil })
		for range 6 {
			_ = ask(key)
		}
		if n, more := allowed[key], unsure[key]; n > 5 || n+more < 5 {
			t.Errorf("%q was allowed %d of 5, and perhaps %d more", key, n, more)
		}
	}
}

// failover starts a primary, a replica and a Sentinel.
func failover(t *testing.T) (primary, replica *services.RedisServer, address string) {
	primary = services.Redis(t)
	replica = services.Redis(t, services.ReplicaOf(primary))
	sentinel := services.Sentinel(t, primary, "main", 1, time.Hour) // on a busy machine a server is silent for long
	return primary, replica, with(sentinel.URL(), "master_set", "main")
}

// killPrimary kills the primary, and has the Sentinel notice it: not before, since a failover that
// nobody meant forgets what was answered.
func killPrimary(t *testing.T, primary *services.RedisServer, address string) {
	t.Helper()
	primary.Kill()
	do(t, admin(t, strings.Replace(address, "master_set=main", "", 1)), "SENTINEL", "SET", "main", "down-after-milliseconds", "500")
}

// promoted waits until a replica is the primary. The Sentinel cuts all its
// connections then, also the one that asks.
func promoted(t *testing.T, replica *services.RedisServer) {
	t.Helper()
	rc := admin(t, replica.URL())
	eventually(t, "the replica is not promoted", func() bool {
		info, err := rc.Do(t.Context(), rc.B().Info().Section("replication").Build()).ToString()
		return err == nil && strings.Contains(info, "role:master")
	})
}

// TestSentinel: what the replica has is kept over a failover: holds, their place
// in the queue, and tokens.
func TestSentinel(t *testing.T) {
	primary, replica, address := failover(t)
	t.Run("suite", func(t *testing.T) { suite(t, address) })
	a, b := open(t, address), open(t, address)
	if a.Info().Features[driver.FeatureLostFirst] {
		t.Error("behind Sentinel lost-first is declared, although a failover may forget a grant")
	}
	hold := soLong(t, func() (*holdfast.Hold, error) { return a.Mutex("m", holdfast.TTL(20*time.Second)).Acquire(t.Context()) })
	waits, got := make(chan struct{}), make(chan *holdfast.Hold, 1)
	go func() {
		h, err := b.Mutex("m", holdfast.TTL(20*time.Second), holdfast.OnWait(func(int) { close(waits) })).Acquire(context.Background())
		if err != nil {
			t.Error(err)
		}
		got <- h
	}()
	<-waits
	if n := do(t, admin(t, primary.URL()), "WAIT", "1", "10000"); n != "1" {
		t.Fatalf("%s replicas have it", n)
	}
	killPrimary(t, primary, address)
	promoted(t, replica)
	eventually(t, "no answer after the failover", func() bool {
		_, err := a.Mutex("m").TryAcquire(t.Context())
		if err == nil {
			t.Fatal("a lock that is held was granted after the failover")
		}
		return errors.Is(err, holdfast.ErrHeld)
	})
	if err := hold.Err(); err != nil {
		t.Errorf("the hold did not last: %v", err)
	}
	if err := hold.Release(); err != nil {
		t.Error(err)
	}
	if next := <-got; next == nil || next.Token() <= hold.Token() {
		t.Errorf("the waiter has %v after the token %d", next, hold.Token())
	}
}

// TestSentinelLosesAGrant: a hold that the replica did not have is forgotten by
// a failover. Its holder is told, by the end of its TTL.
func TestSentinelLosesAGrant(t *testing.T) {
	t.Parallel()
	primary, replica, address := failover(t)
	a, b := open(t, address), open(t, address)
	behind := admin(t, replica.URL())
	do(t, behind, "CONFIG", "SET", "masteruser", "nobody", "masterauth", "nothing") // cannot come back
	do(t, admin(t, primary.URL()), "CLIENT", "KILL", "TYPE", "replica")
	eventually(t, "the replica is connected", func() bool { return strings.Contains(do(t, behind, "INFO", "replication"), "master_link_status:down") })
	hold := soLong(t, func() (*holdfast.Hold, error) { return a.Mutex("m", holdfast.TTL(9*time.Second)).Acquire(t.Context()) })
	killPrimary(t, primary, address)
	promoted(t, replica)
	var next *holdfast.Hold
	eventually(t, "no answer after the failover", func() (ok bool) {
		var err error
		next, err = b.Mutex("m").TryAcquire(t.Context())
		if err != nil && !errors.Is(err, holdfast.ErrUnavailable) {
			t.Fatal(err)
		}
		return err == nil
	})
	select {
	case <-hold.Done():
	case <-time.After(20 * time.Second):
		t.Fatal("the holder was not told that its hold is forgotten")
	}
	if err := hold.Err(); !errors.Is(err, holdfast.ErrLost) {
		t.Errorf("it was told %v", err)
	}
	if err := next.Err(); err != nil {
		t.Errorf("the next holder: %v", err)
	}
}
