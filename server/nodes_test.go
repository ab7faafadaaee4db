//go:build unix

package server_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/internal/node/api"
	"github.com/holdfast-io/holdfast/internal/services"
	"github.com/holdfast-io/holdfast/server"
)

func init() { roles["node"] = nodeChild }

// nodeChild is one node: SERVER_TEST_LOOK is where it tells how it is.
func nodeChild() error {
	go untilOrphaned()
	cfg, err := childConfig()
	if err != nil {
		return err
	}
	srv, err := server.New(cfg)
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", cfg.Founders[cfg.ID-1].Client)
	if err != nil {
		return err
	}
	look, err := net.Listen("tcp", os.Getenv("SERVER_TEST_LOOK"))
	if err != nil {
		return err
	}
	go showAll(srv, look)
	return api.Serve(context.Background(), ln, api.New(srv), api.Config{})
}

// showAll tells whoever connects how the node is.
func showAll(srv *server.Server, ln net.Listener) {
	for {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			if st, err := srv.Status(context.Background()); err == nil {
				fmt.Fprintln(conn, st.Serving, st.Applied, st.Hash)
			}
		}()
	}
}

// childConfig is the configuration that a process was started with:
// SERVER_TEST_NODES are all peers and client addresses.
func childConfig() (server.Config, error) {
	id, err := strconv.Atoi(os.Getenv("SERVER_TEST_ID"))
	if err != nil {
		return server.Config{}, err
	}
	cfg := nodeConfig(id, os.Getenv("SERVER_TEST_DIR"), os.Getenv("SERVER_TEST_NODES"))
	if tick := os.Getenv("SERVER_TEST_TICK"); tick != "" {
		cfg.Tick, err = time.ParseDuration(tick)
	}
	return cfg, err
}

// nodeConfig is for node id of those that founders reads.
func nodeConfig(id int, dir, text string) server.Config {
	cfg := server.Config{Dir: dir, ID: uint64(id), Founders: founders(text)}
	if len(cfg.Founders) > 1 {
		cfg.Listen = cfg.Founders[id-1].Peer
	}
	return cfg
}

// founders reads what nodes.text wrote.
func founders(text string) (all []server.Member) {
	for i, addrs := range strings.Split(text, ",") {
		peer, client, _ := strings.Cut(addrs, "+")
		all = append(all, server.Member{ID: uint64(i + 1), Peer: peer, Client: client})
	}
	return all
}

// nodes is a group of processes on loopback.
type nodes struct {
	t     testing.TB
	role  string   // of each
	addrs []string // peer+client
	looks []string
	dirs  []string
	procs []*process
}

func newNodes(t testing.TB, n int) *nodes {
	t.Helper()
	g := planNodes(t, "node", n)
	for i := range n {
		g.start(i)
	}
	return g
}

// planNodes is a group of which none runs yet.
func planNodes(t testing.TB, role string, n int) *nodes {
	t.Helper()
	g := &nodes{t: t, role: role, procs: make([]*process, n)}
	for range n {
		g.addrs = append(g.addrs, services.Addr(t)+"+"+services.Addr(t))
		g.looks = append(g.looks, services.Addr(t))
		g.dirs = append(g.dirs, t.TempDir())
	}
	return g
}

func (g *nodes) start(i int, env ...string) {
	g.t.Helper()
	g.procs[i] = spawn(g.t, g.role, append(env, "SERVER_TEST_DIR="+g.dirs[i], fmt.Sprint("SERVER_TEST_ID=", i+1), "SERVER_TEST_NODES="+g.text(),
		"SERVER_TEST_LOOK="+g.looks[i])...)
}

// text is what founders reads.
func (g *nodes) text() string { return strings.Join(g.addrs, ",") }

// clients are the addresses for clients.
func (g *nodes) clients() (all []string) {
	for _, a := range g.addrs {
		_, client, _ := strings.Cut(a, "+")
		all = append(all, client)
	}
	return all
}

// status is what a node tells about itself.
type status struct {
	serving       bool
	applied, hash uint64
}

func (g *nodes) status(i int) (st status, err error) {
	conn, err := net.DialTimeout("tcp", g.looks[i], time.Second)
	if err != nil {
		return st, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	_, err = fmt.Fscan(conn, &st.serving, &st.applied, &st.hash)
	return st, err
}

// leader waits until a node other than not serves, and returns it.
func (g *nodes) leader(not int) int {
	g.t.Helper()
	found := -1
	g.await("no node leads", func() bool {
		for i := range g.procs {
			if i == not {
				continue
			}
			if st, err := g.status(i); err == nil && st.serving {
				found = i
			}
		}
		return found >= 0
	})
	return found
}

// settled waits until every node has applied what the leader has now.
func (g *nodes) settled() {
	g.t.Helper()
	lead := g.leader(-1)
	first, _ := g.status(lead)
	for i := range g.procs {
		g.await(fmt.Sprintf("node %d does not catch up", i+1), func() bool {
			st, err := g.status(i)
			return err == nil && st.applied >= first.applied
		})
	}
}

// agreed waits until every node has the same state.
func (g *nodes) agreed() {
	g.t.Helper()
	g.await("the nodes differ", func() bool {
		seen := map[status]bool{}
		for i := range g.procs {
			st, err := g.status(i)
			seen[status{applied: st.applied, hash: st.hash}] = true
			if err != nil {
				return false
			}
		}
		return len(seen) == 1
	})
}

// await looks until it sees what it wants.
func (g *nodes) await(what string, look func() bool) {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	for !look() {
		select {
		case <-ctx.Done():
			g.t.Fatal(what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}
