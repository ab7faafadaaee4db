package cli_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-io/holdfast/internal/services"
)

// grownAndShrunk lets more nodes in and removes them again: one, of a node alone two, so that it is a group meanwhile.
func (s *sequence) grownAndShrunk(int) {
	more := 1
	if len(s.nodes) == 1 {
		more = 2
	}
	for range more {
		s.grow(services.Addr(s.t))
		s.whole()
	}
	for range more {
		s.shrink()
		s.whole()
	}
}

// moved gives a node another address for other nodes, as docs/operate.md says. All name it in their --members from their next start on.
func (s *sequence) moved(i int) {
	_ = s.nodes[i].signal(syscall.SIGTERM)
	was, now := s.peers[i], services.Addr(s.t)
	until(s.t, s.url, "member", "update", fmt.Sprint(s.ids[i]), now, s.hosts[i])
	for _, n := range s.nodes {
		at := slices.Index(n.args, "--members") + 1
		n.args = slices.Clone(n.args)
		n.args[at] = strings.ReplaceAll(n.args[at], "="+was+"/", "="+now+"/")
	}
	s.peers[i], s.nodes[i].args[slices.Index(s.nodes[i].args, "--peer")+1] = now, now
	s.nodes[i].start()
}

// replacedByHand has an operator replace a node that lost its disk and waits for that.
func (s *sequence) replacedByHand(i int) {
	n, was := s.nodes[i], s.ids[i]
	_ = n.signal(syscall.SIGKILL)
	if err := os.RemoveAll(s.data(i)); err != nil {
		s.t.Fatal(err)
	}
	usual := n.args
	n.args = append(slices.Clone(usual), "--no-replace")
	n.start()
	n.args = usual
	for began := time.Now(); ; {
		_ = program(s.t, s.dir, "--url", s.url, "member", "replace", fmt.Sprint(was)).Run()
		out, _ := program(s.t, s.dir, "--json", "--url", s.url, "status").Output()
		if s.numbers(out) && s.ids[i] != was {
			return
		}
		if time.Since(began) > time.Minute {
			s.t.Fatalf("after a minute node %d is not replaced:\n%s", was, out)
		}
	}
}
