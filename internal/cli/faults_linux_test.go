package cli_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/services"
	holdfastv1 "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

var (
	faults     = flag.Int("cli.faults", 3, "how many faults TestFaults has at least")
	operations = flag.Int("cli.operations", 0, "how many operations of clients TestFaults has at least")
	faultSeed  = flag.Uint64("cli.fault", 1, "the seed of TestFaults")
)

// TestFaults has three nodes under load by Go, gRPC and REST. Nodes are killed, stopped and
// saved, their links are cut in one way, broken and made slow, their disks are busy. What
// the clients saw is linearizable.
func TestFaults(t *testing.T) {
	began := time.Now()
	s, links := linked(t, *faultSeed)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for number, d := range s.dialects() {
		wg.Go(func() { s.client(ctx, number, d) })
	}
	defer wg.Wait()
	defer cancel()
	n := 0
	for ; n < *faults || s.noted() < *operations; n++ {
		s.fault(links)
		s.whole()
	}
	cancel()
	wg.Wait()
	s.judge()
	t.Logf("proof: 3 nodes, seed %d: %d operations by Go, gRPC and REST linearizable, %d additions and puts without an answer, %d faults, in %s",
		*faultSeed, len(s.history), s.unanswered(), n, time.Since(began).Round(time.Second))
	t.Logf("proof: %s", timesOf(s.did))
	t.Logf("proof: %s", timesOf(s.by))
}

// linked is a group of three in which every node is reached by the others through a link
// of its own.
func linked(t *testing.T, seed uint64) (*sequence, []*services.Link) {
	s := &sequence{t: t, r: rand.New(rand.NewPCG(seed, 2)), dir: t.TempDir(), did: map[string]int{}, by: map[string]int{}, began: time.Now()}
	var links []*services.Link
	var members []string
	for i := range 3 {
		s.peers, s.hosts = append(s.peers, services.Addr(t)), append(s.hosts, services.Addr(t))
		links = append(links, services.Proxy(t, s.peers[i]))
		members = append(members, fmt.Sprintf("%d=%s/%s", i+1, links[i].Addr(), s.hosts[i]))
	}
	for i := range 3 {
		s.nodes = append(s.nodes, &node{t: t, args: []string{
			"serve", "--data", filepath.Join(s.dir, fmt.Sprint(i+1)), "--id", fmt.Sprint(i + 1), "--peer", s.peers[i], "--listen", s.hosts[i], "--members", strings.Join(members, ","),
		}})
	}
	s.url = "holdfast://" + strings.Join(s.hosts, ",")
	runs(t, s.nodes...)
	s.whole()
	return s, links
}

// fault does one thing to one node, for up to three seconds.
func (s *sequence) fault(links []*services.Link) {
	i := s.r.IntN(len(s.nodes))
	link, lasts := links[i], time.Duration(s.r.IntN(3000))*time.Millisecond
	all := map[string]func(){
		"killed":            func() { _ = s.nodes[i].signal(syscall.SIGKILL); s.nodes[i].start() },
		"stopped":           func() { s.stopped(i) },
		"deaf":              func() { link.Cut(services.ToServer); <-time.After(lasts); link.Heal() },
		"mute to its peers": func() { link.Cut(services.ToClient); <-time.After(lasts); link.Heal() },
		"links broken":      link.Break,
		"links slow":        func() { link.Delay(lasts / 10); <-time.After(lasts); link.Heal() },
		"disk busy":         func() { s.busyDisk(lasts) },
		"saved": func() {
			_ = program(s.t, s.dir, "--url", "holdfast://"+s.hosts[i], "snapshot", "save", filepath.Join(s.dir, "backup")).Run()
		},
		"handed over": func() { s.handedOver(i) },
	}
	names := slices.Sorted(maps.Keys(all))
	name := names[s.r.IntN(len(names))]
	s.did[name]++
	all[name]()
}

// busyDisk writes and syncs beside the nodes' logs, so that their own syncs take longer.
func (s *sequence) busyDisk(lasts time.Duration) {
	f, err := os.Create(filepath.Join(s.dir, "busy"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer f.Close()
	for piece, end := make([]byte, 8<<20), time.Now().Add(lasts); time.Now().Before(end); {
		if _, err := f.WriteAt(piece, 0); err != nil {
			s.t.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			s.t.Fatal(err)
		}
	}
}

// dialect is a way to ask. notDone: it has certainly had no effect.
type dialect struct {
	name string
	list string // what its clients do; a node remembers 100,000 idempotency keys, so they are used for additions only
	do   func(ctx context.Context, key string, in seen) (value int64, notDone bool, err error)
}

// ask does an operation. An addition without an answer is repeated under its key: with
// many that may have happened a history cannot be judged.
func (d *dialect) ask(in seen) (value int64, notDone bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	key := ""
	if in.do == 'a' {
		key = fmt.Sprint(rand.Uint64())
	}
	for {
		if value, notDone, err = d.do(ctx, key, in); err == nil {
			return value, false, nil
		}
		<-time.After(10 * time.Millisecond) // a node that is away refuses many in a moment
		if notDone || in.do != 'a' || ctx.Err() != nil {
			return value, notDone, err
		}
	}
}

// dialects are the clients: four by Go, four by gRPC, four by REST.
func (s *sequence) dialects() (all []dialect) {
	for i := range 4 {
		space, err := holdfast.Open(s.t.Context(), s.url)
		if err != nil {
			s.t.Fatal(err)
		}
		s.t.Cleanup(func() { _ = space.Close() })
		host := s.hosts[i%len(s.hosts)]
		conn, err := grpc.NewClient(host, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			s.t.Fatal(err)
		}
		s.t.Cleanup(func() { _ = conn.Close() })
		all = append(all,
			dialect{"Go", "agprl", func(ctx context.Context, _ string, in seen) (int64, bool, error) {
				value, err := answered(ctx, space, in)
				return value, holdfast.NotDone(err), err
			}},
			dialect{"gRPC", "agggprrrl", func(ctx context.Context, key string, in seen) (int64, bool, error) {
				value, err := byRPC(withKey(ctx, key), conn, in)
				return value, false, err
			}},
			dialect{"REST", "agggprrrl", func(ctx context.Context, key string, in seen) (int64, bool, error) {
				return byREST(ctx, host, key, in)
			}})
	}
	return all
}

// client asks one thing after the other until the test is over. All clients use the same
// names for a second, and then others: what is judged together stays small.
func (s *sequence) client(ctx context.Context, number int, d dialect) {
	r := rand.New(rand.NewPCG(uint64(number), 11))
	for i := int64(1); ctx.Err() == nil; i++ {
		in := some(r, d.list, fmt.Sprintf("%d/", int(time.Since(s.began).Seconds())), i*100+int64(number))
		s.note(number, in, func() (int64, bool, error) { return d.ask(in) })
		s.mu.Lock()
		s.by[d.name]++
		s.mu.Unlock()
	}
}

func withKey(ctx context.Context, key string) context.Context {
	if key == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, "idempotency-key", key)
}

func byRPC(ctx context.Context, conn *grpc.ClientConn, in seen) (int64, error) {
	counters, keys := holdfastv1.NewCounterServiceClient(conn), holdfastv1.NewKVServiceClient(conn)
	switch in.do {
	case 'a':
		r, err := counters.Add(ctx, &holdfastv1.CounterAddRequest{Name: in.name})
		return r.GetValue(), err
	case 'g':
		r, err := counters.Get(ctx, &holdfastv1.CounterGetRequest{Name: in.name})
		return r.GetValue(), err
	case 'p':
		_, err := keys.Put(ctx, &holdfastv1.PutRequest{Key: in.name, Value: fmt.Append(nil, in.value)})
		return in.value, err
	case 'r':
		r, err := keys.Get(ctx, &holdfastv1.GetRequest{Key: in.name})
		if err != nil || r.Kv == nil {
			return 0, err
		}
		return strconv.ParseInt(string(r.Kv.Value), 10, 64)
	}
	locks := holdfastv1.NewLockServiceClient(conn)
	r, err := locks.Lock(ctx, &holdfastv1.LockRequest{Name: in.name, TimeoutMs: new(int64(5000)), TtlMs: 5000})
	if err != nil {
		return 0, err
	}
	if !r.Acquired {
		return 0, errors.New("not acquired")
	}
	_, _ = locks.Unlock(ctx, &holdfastv1.UnlockRequest{Key: r.Key})
	return r.FencingToken, nil
}

// reply is what every answer of REST may have.
type reply struct {
	Value   json.RawMessage `json:"value"`
	Token   int64           `json:"token"`
	NotDone bool            `json:"not_done"`
	Error   string          `json:"error"`
	Kind    string          `json:"kind"`
}

func byREST(ctx context.Context, host, key string, in seen) (value int64, notDone bool, err error) {
	var out reply
	switch in.do {
	case 'a':
		out, err = rest(ctx, host, key, "POST", "counters/"+in.name+":add", "{}")
	case 'g':
		out, err = rest(ctx, host, key, "GET", "counters/"+in.name, "")
	case 'p':
		out, err = rest(ctx, host, key, "PUT", "kv/"+in.name, fmt.Sprintf(`{"value":"%d"}`, in.value))
		return in.value, out.NotDone, err
	case 'r':
		if out, err = rest(ctx, host, key, "GET", "kv/"+in.name, ""); out.Kind == "not found" {
			return 0, false, nil
		}
	case 'l':
		if out, err = rest(ctx, host, key, "POST", "locks/"+in.name+":acquire", `{"holder_id":"r","ttl_ms":5000,"timeout_ms":5000}`); err == nil {
			_, _ = rest(ctx, host, key, "POST", "locks/"+in.name+":release", fmt.Sprintf(`{"token":%d}`, out.Token))
			return out.Token, false, nil
		}
	}
	if err != nil {
		return 0, out.NotDone, err
	}
	value, err = strconv.ParseInt(strings.Trim(string(out.Value), `"`), 10, 64)
	return value, false, err
}

func rest(ctx context.Context, host, key, method, path, body string) (out reply, err error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://"+host+"/v1/"+path, strings.NewReader(body))
	if err != nil {
		return out, err
	}
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return out, err
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err != nil {
		return out, err
	}
	if err := json.Unmarshal(data, &out); err != nil {
		return out, fmt.Errorf("%s: %q: %w", answer.Status, data, err)
	}
	if out.Error != "" {
		return out, errors.New(out.Error)
	}
	return out, nil
}
