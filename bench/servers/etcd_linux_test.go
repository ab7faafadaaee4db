package servers

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/holdfast-io/holdfast/internal/services"
)

// etcd is an etcd server, of one node or more. Its clients know all of them and
// take turns, which is their default.
type etcd struct {
	nodes     []*services.Process
	endpoints []string
}

// startEtcd runs a node or a group at its defaults, which sync every write.
func startEtcd(t *testing.T, program string, size int) *etcd {
	e := &etcd{}
	peers, members := make([]string, size), make([]string, size)
	for i := range size {
		e.endpoints = append(e.endpoints, services.Addr(t))
		peers[i] = "http://" + services.Addr(t)
		members[i] = fmt.Sprintf("n%d=%s", i, peers[i])
	}
	for i, addr := range e.endpoints {
		e.nodes = append(e.nodes, services.Start(t, "etcd", addr, func(dir string) *exec.Cmd {
			return exec.Command(program, "--name", fmt.Sprint("n", i), "--data-dir", filepath.Join(dir, "data"), "--log-level", "error",
				"--listen-client-urls", "http://"+addr, "--advertise-client-urls", "http://"+addr,
				"--listen-peer-urls", peers[i], "--initial-advertise-peer-urls", peers[i], "--initial-cluster", strings.Join(members, ","))
		}))
	}
	return e
}

func (e *etcd) meter() meter { return metering(e.nodes...) }

// client is a program of its own: one connection to each node.
func (e *etcd) client(t *testing.T) *clientv3.Client {
	c, err := clientv3.New(clientv3.Config{Endpoints: e.endpoints, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func (e *etcd) clients(t *testing.T, n int) []*clientv3.Client {
	all := make([]*clientv3.Client, n)
	for i := range all {
		all[i] = e.client(t)
	}
	return all
}

// session is what a program's locks hang on; one for each program, as ours has.
func (e *etcd) session(t *testing.T) *concurrency.Session {
	s, err := concurrency.NewSession(e.client(t))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (e *etcd) sessions(t *testing.T, n int) []*concurrency.Session {
	all := make([]*concurrency.Session, n)
	for i := range all {
		all[i] = e.session(t)
	}
	return all
}

func etcdLock(ctx context.Context, s *concurrency.Session, name string) lock {
	m := concurrency.NewMutex(s, name)
	return func() (func() error, error) {
		return func() error { return m.Unlock(ctx) }, m.Lock(ctx)
	}
}

func (e *etcd) pairs(t *testing.T, callers int) turn {
	sessions := e.sessions(t, connections(callers))
	return each(many(callers, func(i int) func() error {
		return pair(etcdLock(t.Context(), sessions[i/perConnection], fmt.Sprint("/pair-", i)))
	}), e.meter())
}

func (e *etcd) crowd(t *testing.T, callers int) turn {
	sessions := e.sessions(t, callers)
	return handOver(many(callers, func(i int) lock {
		return etcdLock(t.Context(), sessions[i], fmt.Sprint("/crowd-", callers))
	}), e.meter())
}

// counter adds by compare-and-swap, since etcd has nothing else. A try that fails
// brings what the next one compares with.
func (e *etcd) counter(t *testing.T, callers int) turn {
	clients := e.clients(t, connections(callers))
	return each(many(callers, func(i int) func() error {
		c, n := clients[i/perConnection], &number{}
		return func() error { return n.add(t.Context(), c) }
	}), e.meter())
}

// number is a key with a number, as a caller saw it last.
type number struct {
	value    uint64
	revision int64
}

func (n *number) add(ctx context.Context, c *clientv3.Client) error {
	const key = "/hot"
	for {
		r, err := c.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", n.revision)).
			Then(clientv3.OpPut(key, fmt.Sprint(n.value+1))).Else(clientv3.OpGet(key)).Commit()
		if err != nil {
			return err
		}
		if r.Succeeded {
			n.value, n.revision = n.value+1, r.Header.Revision
			return nil
		}
		kv := r.Responses[0].GetResponseRange().Kvs[0]
		n.revision = kv.ModRevision
		if _, err := fmt.Sscan(string(kv.Value), &n.value); err != nil {
			return err
		}
	}
}

func (e *etcd) fan(t *testing.T, watchers int) turn {
	ctx, fail := context.WithCancelCause(t.Context())
	t.Cleanup(func() { fail(nil) })
	f, ready := newFan(watchers), make(chan struct{}, watchers)
	for _, c := range e.clients(t, watchers/perFeed) {
		for range perFeed {
			go func() { fail(etcdFollow(ctx, c, f, ready)) }()
		}
	}
	await(t, ctx, ready, watchers)
	c, value := e.client(t), string(make([]byte, valueSize))
	return f.turn(ctx, func() error { _, err := c.Put(ctx, "/watched", value); return err }, e.meter())
}

func etcdFollow(ctx context.Context, c *clientv3.Client, f *fan, ready chan<- struct{}) error {
	n := 0
	for r := range c.Watch(ctx, "/watched", clientv3.WithCreatedNotify()) {
		if err := r.Err(); err != nil {
			return err
		}
		if r.Created {
			ready <- struct{}{}
		}
		for range r.Events {
			f.saw(n)
			n++
		}
	}
	return ctx.Err()
}
