package cli_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/holdfast-io/holdfast"
)

var (
	sequences     = flag.Int("cli.sequences", 1, "how many random sequences of operator commands TestSequences runs, on 1, 3 and 5 nodes in turn")
	firstSequence = flag.Uint64("cli.sequence", 1, "the seed of the first")
	sequenceSteps = flag.Int("cli.steps", 3, "how many steps a sequence has")
)

// TestSequences has operators do what docs/operate.md allows, in a random order and under
// load, beside nodes that are killed, stopped, wiped and damaged. Afterwards the group is
// whole, and what its clients saw is linearizable. A seed gives the same steps again.
func TestSequences(t *testing.T) {
	began, ops, unknown := time.Now(), 0, 0
	steps := map[string]int{}
	seed := *firstSequence
	for ; seed < *firstSequence+uint64(*sequences) && !t.Failed(); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			s := newSequence(t, seed)
			history := s.run(*sequenceSteps)
			for name, n := range s.did {
				steps[name] += n
			}
			ops += len(history)
			unknown += s.unanswered()
			if s.judge(); t.Failed() {
				t.Logf("replay with: go test ./internal/cli -run TestSequences -cli.sequence=%d", seed)
			}
		})
	}
	t.Logf("proof: sequences %d to %d, on 1, 3 and 5 nodes in turn, %d steps each: %d operations of clients linearizable, %d without an answer, in %s",
		*firstSequence, seed-1, *sequenceSteps, ops, unknown, time.Since(began).Round(time.Second))
	t.Logf("proof: %s", timesOf(steps))
}

// timesOf lists how often each was.
func timesOf(n map[string]int) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(n)) {
		list = append(list, fmt.Sprintf("%s %d", name, n[name]))
	}
	return strings.Join(list, ", ")
}

// judge checks what the clients saw.
func (s *sequence) judge() {
	s.t.Helper()
	switch porcupine.CheckOperationsTimeout(promises, s.seen(), 5*time.Minute) {
	case porcupine.Unknown:
		s.t.Errorf("five minutes were not enough to judge %d operations", len(s.history))
	case porcupine.Illegal:
		s.t.Error("what the clients saw is not linearizable")
	}
}

// seen is the history without puts that have no answer and were never read: whether they
// happened changes nothing for anybody, and to try both for each takes for ever.
func (s *sequence) seen() []porcupine.Operation {
	read := map[int64]bool{}
	for _, o := range s.history {
		if out := o.Output.(seen); out.do == 'r' {
			read[out.value] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(s.history), func(o porcupine.Operation) bool {
		out := o.Output.(seen)
		return out.do == 'p' && out.failed && !read[out.value]
	})
}

// unanswered is how many additions and puts may have happened.
func (s *sequence) unanswered() (n int) {
	for _, o := range s.history {
		if o.Return == math.MaxInt64 {
			n++
		}
	}
	return n
}

// seen is one operation of a client, and what it gave.
type seen struct {
	name   string
	do     byte // 'a' adds 1 to a counter, 'g' loads it; 'p' puts a key, 'r' reads it; 'l' takes a lock
	value  int64
	failed bool // no answer: it may have happened, now or later
}

// promises is what the histories are checked against: counters and keys are registers,
// and each grant of a lock has a greater token than all before it.
var promises = porcupine.Model{
	Init: func() any { return int64(0) },
	Step: func(state, input, output any) (bool, any) {
		was, in, out := state.(int64), input.(seen), output.(seen)
		switch in.do {
		case 'a':
			return out.failed || out.value == was+1, was + 1
		case 'p':
			return true, in.value
		case 'l':
			return out.failed || out.value > was, max(was, out.value)
		}
		return out.failed || out.value == was, was
	},
	Partition: func(history []porcupine.Operation) (parts [][]porcupine.Operation) {
		by := map[string][]porcupine.Operation{}
		for _, o := range history {
			name := o.Input.(seen).name
			by[name] = append(by[name], o)
		}
		return slices.Collect(maps.Values(by))
	},
}

// The check can fail: a read that goes back, a token twice, a count lost.
func TestSequences_CheckFails(t *testing.T) {
	op := func(do byte, value, call int64) porcupine.Operation {
		s := seen{name: "x", do: do, value: value}
		return porcupine.Operation{Input: s, Output: s, Call: call, Return: call + 1}
	}
	for what, history := range map[string][]porcupine.Operation{
		"goes back":   {op('p', 1, 0), op('p', 2, 2), op('r', 1, 4)},
		"token twice": {op('l', 7, 0), op('l', 7, 2)},
		"count lost":  {op('a', 1, 0), op('a', 1, 2)},
	} {
		if porcupine.CheckOperations(promises, history) {
			t.Errorf("%s: is not noticed", what)
		}
	}
}

// sequence is a group under load, and its operator.
type sequence struct {
	t     *testing.T
	r     *rand.Rand
	dir   string
	nodes []*node
	peers []string
	hosts []string
	url   string
	ids   []uint64 // of the nodes, by place
	most  uint64   // the greatest number that was ever seen
	did   map[string]int
	by    map[string]int // operations by each dialect

	began   time.Time
	mu      sync.Mutex
	history []porcupine.Operation
}

func newSequence(t *testing.T, seed uint64) *sequence {
	s := &sequence{t: t, r: rand.New(rand.NewPCG(seed, 1)), dir: t.TempDir(), did: map[string]int{}, began: time.Now()}
	s.nodes, _, s.hosts = group(t, s.dir, []int{3, 5, 1}[seed%3])
	for _, n := range s.nodes {
		s.peers = append(s.peers, n.args[slices.Index(n.args, "--peer")+1])
	}
	s.url = "holdfast://" + strings.Join(s.hosts, ",")
	runs(t, s.nodes...)
	s.whole()
	return s
}

// run does random steps under load; the group is whole after each.
func (s *sequence) run(steps int) []porcupine.Operation {
	ctx, cancel := context.WithCancel(s.t.Context())
	var wg sync.WaitGroup
	for client := range 4 {
		wg.Go(func() { s.load(ctx, client) })
	}
	defer wg.Wait()
	defer cancel()
	for range steps {
		s.step()
		s.whole()
	}
	cancel()
	wg.Wait()
	s.look()
	return s.history
}

// load is a client: what it asks for has no answer only if a node was lost on the way.
func (s *sequence) load(ctx context.Context, client int) {
	space, err := holdfast.Open(s.t.Context(), s.url)
	if err != nil {
		s.t.Error(err)
		return
	}
	defer space.Close()
	r := rand.New(rand.NewPCG(uint64(client), 7))
	for i := int64(1); ctx.Err() == nil; i++ {
		_ = s.ask(space, client, some(r, "agprl", "", i*100+int64(client)))
		<-time.After(time.Duration(r.IntN(6)) * time.Millisecond)
	}
}

// some is a random operation of those listed, on one of a few names; a put has the value.
func some(r *rand.Rand, list, prefix string, value int64) seen {
	in := seen{do: list[r.IntN(len(list))], value: value}
	kind := map[byte]string{'a': "c", 'g': "c", 'p': "k", 'r': "k", 'l': "l"}[in.do]
	in.name = fmt.Sprintf("%s%s%d", prefix, kind, r.IntN(3))
	return in
}

// look reads what is there in the end.
func (s *sequence) look() {
	space, err := holdfast.Open(s.t.Context(), s.url)
	if err != nil {
		s.t.Fatal(err)
	}
	defer space.Close()
	for i := range 3 {
		_ = s.ask(space, 9, seen{name: fmt.Sprintf("c%d", i), do: 'g'})
		_ = s.ask(space, 9, seen{name: fmt.Sprintf("k%d", i), do: 'r'})
	}
}

// ask does one operation, and notes it.
func (s *sequence) ask(space *holdfast.Space, client int, in seen) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var failed error
	s.note(client, in, func() (int64, bool, error) {
		value, err := answered(ctx, space, in)
		failed = err
		return value, false, err
	})
	return failed
}

// note does one operation, and keeps what it gave. One that was certainly not done is
// left out, as is one that changed nothing that another could see.
func (s *sequence) note(client int, in seen, do func() (value int64, notDone bool, err error)) {
	o := porcupine.Operation{ClientId: client, Input: in, Call: int64(time.Since(s.began))}
	value, notDone, err := do()
	if err != nil && (notDone || in.do != 'a' && in.do != 'p') {
		return
	}
	if in.failed = err != nil; !in.failed {
		in.value = value
	}
	o.Output, o.Return = in, int64(time.Since(s.began))
	if in.failed {
		o.Return = math.MaxInt64
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history = append(s.history, o)
}

// noted is how many operations there have been.
func (s *sequence) noted() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.history)
}

func answered(ctx context.Context, space *holdfast.Space, in seen) (int64, error) {
	switch in.do {
	case 'a':
		return space.Counter(in.name).Add(ctx, 1)
	case 'g':
		return space.Counter(in.name).Load(ctx)
	case 'p':
		_, err := space.KV().Put(ctx, in.name, fmt.Append(nil, in.value))
		return in.value, err
	case 'r':
		e, err := space.KV().Get(ctx, in.name)
		if errors.Is(err, holdfast.ErrNotFound) {
			return 0, nil
		}
		if err != nil {
			return 0, err
		}
		return strconv.ParseInt(string(e.Value), 10, 64)
	}
	h, err := space.Mutex(in.name).Acquire(ctx)
	if err != nil {
		return 0, err
	}
	defer h.Release()
	return int64(h.Token()), nil
}

// whole waits until all nodes answer, vote, and follow one leader.
func (s *sequence) whole() {
	s.t.Helper()
	for began := time.Now(); ; {
		out, _ := program(s.t, s.dir, "--json", "--url", s.url, "status").Output()
		members, _ := program(s.t, s.dir, "--url", s.url, "member", "ls").Output()
		if s.numbers(out) && strings.Count(string(members), "votes") == len(s.nodes) && !strings.Contains(string(members), "does not vote") {
			return
		}
		if time.Since(began) > time.Minute {
			s.t.Fatalf("after a minute the group is not whole:\n%s\n%s", out, members)
		}
	}
}

// numbers reads the numbers that the nodes have now; false: one does not answer, or follows no leader.
func (s *sequence) numbers(status []byte) bool {
	var all []struct {
		ID     uint64 `json:"id,string"`
		Leader uint64 `json:"leader,string"`
		Error  string `json:"error"`
	}
	if err := json.Unmarshal(status, &all); err != nil || len(all) != len(s.nodes) {
		return false
	}
	s.ids = nil
	for _, n := range all {
		if n.Error != "" || n.Leader == 0 || n.Leader != all[0].Leader {
			return false
		}
		s.ids, s.most = append(s.ids, n.ID), max(s.most, n.ID)
	}
	return true
}

// step does one thing to one node, and has an operator give a command meanwhile.
func (s *sequence) step() {
	i := s.r.IntN(len(s.nodes))
	all := map[string]func(int){
		"killed": s.killed, "restarted": s.restarted, "stopped": s.stopped, "asked": s.asked, "grown and shrunk": s.grownAndShrunk,
	}
	if len(s.nodes) > 1 {
		maps.Copy(all, map[string]func(int){"wiped": s.wiped, "damaged": s.spoilt, "removed and joined": s.joined, "handed over": s.handedOver, "moved": s.moved, "replaced by hand": s.replacedByHand})
	}
	names := slices.Sorted(maps.Keys(all))
	name := names[s.r.IntN(len(names))]
	s.did[name]++
	s.t.Logf("node %d at place %d: %s", s.ids[i], i, name)
	all[name](i)
}

// asked: an operator asks for what changes nothing, and for what is refused.
func (s *sequence) asked(i int) {
	args := [][]string{
		{"member", "ls"}, {"status"}, {"member", "check"}, {"member", "lead", fmt.Sprint(s.ids[i])}, {"member", "promote", "999"}, {"member", "remove", "999"},
		{"member", "replace", fmt.Sprint(s.ids[i])}, {"member", "unfreeze"}, {"snapshot", "save", filepath.Join(s.dir, fmt.Sprintf("backup-%d", s.r.Uint64()))},
	}
	_ = program(s.t, s.dir, append([]string{"--url", s.url}, args[s.r.IntN(len(args))]...)...).Run()
}

func (s *sequence) killed(i int) {
	_ = s.nodes[i].signal(syscall.SIGKILL)
	s.asked(i)
	s.nodes[i].start()
}

func (s *sequence) restarted(i int) {
	_ = s.nodes[i].signal(syscall.SIGTERM)
	s.asked(i)
	s.nodes[i].start()
}

func (s *sequence) stopped(i int) {
	_ = s.nodes[i].cmd.Process.Signal(syscall.SIGSTOP)
	<-time.After(time.Duration(s.r.IntN(3000)) * time.Millisecond)
	_ = s.nodes[i].cmd.Process.Signal(syscall.SIGCONT)
}

func (s *sequence) handedOver(i int) {
	_ = program(s.t, s.dir, "--url", s.url, "member", "lead", fmt.Sprint(s.ids[i])).Run()
}

// data is the directory of the node at a place.
func (s *sequence) data(i int) string { return s.nodes[i].args[2] }

func (s *sequence) wiped(i int) {
	_ = s.nodes[i].signal(syscall.SIGKILL)
	if err := os.RemoveAll(s.data(i)); err != nil {
		s.t.Fatal(err)
	}
	s.asked(i)
	s.nodes[i].start()
	s.becomes(i)
}

func (s *sequence) spoilt(i int) {
	_ = s.nodes[i].signal(syscall.SIGKILL)
	flip(s.t, s.data(i))
	s.nodes[i].start()
	s.becomes(i)
}

// becomes waits until a node that has nothing was let in under another number: before,
// another may not be lost.
func (s *sequence) becomes(i int) {
	for was, began := s.ids[i], time.Now(); ; {
		out, _ := program(s.t, s.dir, "--json", "--url", s.url, "status").Output()
		if s.numbers(out) && s.ids[i] != was {
			return
		}
		if time.Since(began) > time.Minute {
			s.t.Fatalf("after a minute node %d has no other number:\n%s", was, out)
		}
	}
}

// others lists the members but the one at a place, as --members has them.
func (s *sequence) others(place int) string {
	var list []string
	for i, id := range s.ids {
		if i != place {
			list = append(list, fmt.Sprintf("%d=%s/%s", id, s.peers[i], s.hosts[i]))
		}
	}
	return strings.Join(list, ",")
}

// joined removes a node, and lets one in under another number at the same place.
func (s *sequence) joined(i int) {
	did := program(s.t, s.dir, "--url", s.url, "member", "remove", fmt.Sprint(s.ids[i]))
	if out, err := did.CombinedOutput(); err != nil {
		s.t.Logf("not removed: %v, %s", err, out)
		return
	}
	_ = s.nodes[i].cmd.Process.Kill() // should it not have heard of it yet
	_ = s.nodes[i].cmd.Wait()
	if err := os.RemoveAll(s.data(i)); err != nil {
		s.t.Fatal(err)
	}
	s.most++
	number, args := fmt.Sprint(s.most), s.nodes[i].args
	args[slices.Index(args, "--id")+1], args[slices.Index(args, "--members")+1] = number, s.others(i)
	if !slices.Contains(args, "--join") {
		s.nodes[i].args = append(args, "--join")
	}
	s.nodes[i].start()
	until(s.t, s.url, "member", "add", number, s.peers[i], s.hosts[i])
	until(s.t, s.url, "member", "promote", number)
}
