package cli_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/services"
)

var grown = flag.Int("cli.grown", 3, "to how many nodes TestGrowAndShrink grows")

// TestGrowAndShrink: a node founded alone becomes a group, node by node, every
// node is replaced by another and restarted, and the group shrinks again, under
// load: no call fails, and what the clients saw is linearizable.
func TestGrowAndShrink(t *testing.T) {
	began := time.Now()
	s := newSequence(t, 2) // of one node
	hosts := slices.Clone(s.hosts)
	for range *grown - 1 {
		hosts = append(hosts, services.Addr(t))
	}
	stop := s.loaded("holdfast://" + strings.Join(hosts, ","))
	for _, host := range hosts[1:] {
		s.grow(host)
		s.whole()
	}
	for i := range s.nodes {
		s.joined(i)
		s.whole()
		_ = s.nodes[i].signal(syscall.SIGTERM)
		s.nodes[i].start()
		s.whole()
	}
	for range *grown / 2 {
		s.shrink()
		s.whole()
	}
	failed, longest := stop()
	s.judge()
	t.Logf("proof: 1 to %d to %d nodes, each replaced and restarted: %d operations linearizable, %d failed, the longest took %s, in %s",
		*grown, len(s.nodes), len(s.history), failed, longest.Round(time.Millisecond), time.Since(began).Round(time.Second))
	paused(t, longest)
	if failed > 0 {
		t.Errorf("%d calls failed", failed)
	}
}

// loaded has four clients ask until stop, which tells how many calls failed, and how long
// the longest took.
func (s *sequence) loaded(url string) (stop func() (failed int, longest time.Duration)) {
	ctx, cancel := context.WithCancel(s.t.Context())
	var wg sync.WaitGroup
	failed, longest := 0, time.Duration(0)
	for client := range 4 {
		space, err := holdfast.Open(s.t.Context(), url)
		if err != nil {
			s.t.Fatal(err)
		}
		s.t.Cleanup(func() { _ = space.Close() })
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(client), 13))
			for i := int64(1); ctx.Err() == nil; i++ {
				in, began := some(r, "agprl", fmt.Sprintf("%d/", int(time.Since(s.began).Seconds())), i*100+int64(client)), time.Now()
				err := s.ask(space, client, in)
				s.mu.Lock()
				longest = max(longest, time.Since(began))
				if err != nil {
					failed++
					s.t.Logf("after %s: %v", time.Since(began), err)
				}
				s.mu.Unlock()
				<-time.After(time.Duration(r.IntN(6)) * time.Millisecond)
			}
		})
	}
	s.t.Cleanup(wg.Wait)
	s.t.Cleanup(cancel)
	return func() (int, time.Duration) {
		cancel()
		wg.Wait()
		return failed, longest
	}
}

// grow lets one more node in.
func (s *sequence) grow(host string) {
	peer := services.Addr(s.t)
	s.most++
	number, args := fmt.Sprint(s.most), slices.Clone(s.nodes[0].args)
	args[slices.Index(args, "--id")+1] = number
	args[slices.Index(args, "--peer")+1], args[slices.Index(args, "--listen")+1] = peer, host
	args[slices.Index(args, "--data")+1], args[slices.Index(args, "--members")+1] = filepath.Join(s.dir, number), s.others(-1)
	if !slices.Contains(args, "--join") {
		args = append(args, "--join")
	}
	n := &node{t: s.t, args: args}
	runs(s.t, n)
	until(s.t, s.url, "member", "add", number, peer, host)
	until(s.t, s.url, "member", "promote", number)
	s.nodes, s.peers, s.hosts = append(s.nodes, n), append(s.peers, peer), append(s.hosts, host)
	s.url = "holdfast://" + strings.Join(s.hosts, ",")
}

// shrink removes the last node.
func (s *sequence) shrink() {
	last := len(s.nodes) - 1
	until(s.t, s.url, "member", "remove", fmt.Sprint(s.ids[last]))
	_ = s.nodes[last].cmd.Process.Kill() // should it not have heard of it yet
	_ = s.nodes[last].cmd.Wait()
	s.nodes, s.peers, s.hosts = s.nodes[:last], s.peers[:last], s.hosts[:last]
	s.url = "holdfast://" + strings.Join(s.hosts, ",")
}
