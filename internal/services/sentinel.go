//go:build unix

package services

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/internal/services/programs"
)

// Sentinel starts a Sentinel that watches primary under a name, and takes it for
// down when it has been silent for silence. It counts as ready when it knows as
// many replicas as given. Its URL is that of the Sentinel itself.
func Sentinel(t testing.TB, primary *RedisServer, name string, replicas int, silence time.Duration) *RedisServer {
	t.Helper()
	path, err := programs.Redis.Ensure(t.Context())
	if err != nil {
		t.Fatalf("services: sentinel: %v", err)
	}
	return &RedisServer{begin(t, func() (*unit, error) { return launchSentinel(path, primary.Addr(), name, replicas, silence) })}
}

func launchSentinel(path, primary, name string, replicas int, silence time.Duration) (*unit, error) {
	place, err := newSite("sentinel", nil)
	if err != nil {
		return nil, err
	}
	conf := filepath.Join(place.dir, "sentinel.conf")
	host, port, _ := net.SplitHostPort(primary)
	text := fmt.Sprintf(`bind 127.0.0.1
port %d
dir %q
unixsocket %q
sentinel monitor %[4]s %[5]s %[6]s 1
sentinel down-after-milliseconds %[4]s %[7]d
sentinel failover-timeout %[4]s 5000
`, place.port, place.dir, filepath.Join(place.dir, redisSocket), name, host, port, silence.Milliseconds())
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		return nil, errors.Join(err, place.close())
	}
	u := &unit{
		name:  "redis-sentinel",
		place: place,
		url:   &url.URL{Scheme: "redis", Host: place.addr()},
		command: func() *exec.Cmd {
			return &exec.Cmd{Path: path, Args: []string{path, conf, "--sentinel"}, SysProcAttr: attributes(nil)}
		},
		ready: func(int) error {
			return redisExpect(place.dir, "", "INFO sentinel", fmt.Sprintf("master0:name=%s,status=ok,address=%s,slaves=%d", name, primary, replicas))
		},
		quit: syscall.SIGTERM,
		drop: syscall.SIGKILL,
	}
	return u.start()
}

// RedisCluster starts n Redis servers that are the primaries of a cluster, and
// waits until each of them serves.
func RedisCluster(t testing.TB, n int) []*RedisServer {
	t.Helper()
	if _, running, err := locate(t.Context(), programs.Redis, []Option{Setting("cluster-enabled", "yes")}); err != nil || running != "" {
		t.Fatalf("services: redis: a cluster needs the program: %v", err)
	}
	servers, bus := make([]*RedisServer, n), make([]string, n)
	for i := range servers {
		_, bus[i], _ = net.SplitHostPort(Addr(t))
		servers[i] = Redis(t, Setting("cluster-enabled", "yes"), Setting("cluster-port", bus[i]))
	}
	const slots = 16384
	for i, s := range servers {
		s.tell("+OK", fmt.Sprintf("CLUSTER ADDSLOTSRANGE %d %d", i*slots/n, (i+1)*slots/n-1))
		s.tell("+OK", fmt.Sprintf("CLUSTER SET-CONFIG-EPOCH %d", i+1))
	}
	for i, s := range servers[1:] {
		servers[0].tell("+OK", "CLUSTER MEET "+strings.Replace(s.Addr(), ":", " ", 1)+" "+bus[i+1])
	}
	for _, s := range servers {
		s.await("cluster_state:ok", "CLUSTER INFO")
		s.await("cluster_known_nodes:"+strconv.Itoa(n), "CLUSTER INFO")
	}
	return servers
}

// tell sends a command and wants a line of the reply to begin so.
func (s *RedisServer) tell(want, command string) {
	s.t.Helper()
	if err := redisExpect(s.unit.place.dir, "", command, want); err != nil {
		s.t.Fatalf("services: %v", err)
	}
}

// await repeats a command until a line of the reply begins so.
func (s *RedisServer) await(want, command string) {
	s.t.Helper()
	deadline := time.Now().Add(readyLimit)
	for {
		err := redisExpect(s.unit.place.dir, "", command, want)
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("services: after %v: %v", readyLimit, err)
		}
		time.Sleep(readyPoll)
	}
}

// MoveSlot gives the slot of key, with all its keys, to the next node. midway is
// called when the move has begun and no key has moved.
func MoveSlot(t testing.TB, nodes []*RedisServer, key string, midway func()) {
	t.Helper()
	ask := func(s *RedisServer, command string) string {
		reply, err := redisAsk(s.unit.place.dir, "", command)
		if err != nil || strings.HasPrefix(reply, "-") {
			t.Fatalf("services: %s: %q, %v", command, reply, err)
		}
		return reply
	}
	id := func(s *RedisServer) string { return strings.Fields(ask(s, "CLUSTER MYID"))[1] }
	slot := strings.TrimPrefix(strings.Fields(ask(nodes[0], "CLUSTER KEYSLOT "+strconv.Quote(key)))[0], ":")
	number, _ := strconv.Atoi(slot)
	from := number * len(nodes) / 16384
	giver, taker := nodes[from], nodes[(from+1)%len(nodes)]
	ask(taker, "CLUSTER SETSLOT "+slot+" IMPORTING "+id(giver))
	ask(giver, "CLUSTER SETSLOT "+slot+" MIGRATING "+id(taker))
	midway()
	for {
		lines := strings.Fields(ask(giver, "CLUSTER GETKEYSINSLOT "+slot+" 1000"))
		var keys []string
		for i := 2; i < len(lines); i += 2 { // *n, then $length and key of each
			if i < len(lines) && strings.HasPrefix(lines[i-1], "$") {
				keys = append(keys, strconv.Quote(lines[i]))
			}
		}
		if len(keys) == 0 {
			break
		}
		ask(giver, "MIGRATE "+strings.Replace(taker.Addr(), ":", " ", 1)+` "" 0 5000 KEYS `+strings.Join(keys, " "))
	}
	for _, s := range []*RedisServer{taker, giver} {
		ask(s, "CLUSTER SETSLOT "+slot+" NODE "+id(taker))
	}
}
