//go:build unix

package services

import (
	"errors"
	"fmt"
	"io"
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

// A RedisServer is a running Redis.
type RedisServer struct{ Process }

// Redis starts a Redis server for this test. It keeps nothing on disk unless
// it is [Durable]. Further options: [Setting], [Password], [ReplicaOf], [TLS].
func Redis(t testing.TB, opts ...Option) *RedisServer {
	t.Helper()
	path, running, err := locate(t.Context(), programs.Redis, opts)
	if err != nil {
		t.Fatalf("services: redis: %v", err)
	}
	if running != "" {
		return &RedisServer{foreign(t, programs.Redis.Variable, running)}
	}
	return &RedisServer{begin(t, func() (*unit, error) { return launchRedis(path, collect(opts)) })}
}

// RedisN starts n independent Redis servers for this test.
func RedisN(t testing.TB, n int, opts ...Option) []*RedisServer {
	t.Helper()
	servers := make([]*RedisServer, n)
	for i := range servers {
		servers[i] = Redis(t, opts...)
		if servers[i].unit == nil && n > 1 {
			t.Fatalf("services: redis: %d independent servers are needed: %s", n, servers[i].refusal)
		}
	}
	return servers
}

// SharedRedis returns the Redis that all tests of the package share. It is not
// empty: each test uses names of its own. It needs [Main].
func SharedRedis(t testing.TB) *RedisServer {
	t.Helper()
	return &RedisServer{borrow(t, &shared.redis, programs.Redis.Variable, func() (*unit, error) {
		path, err := programs.Redis.Ensure(t.Context())
		if err != nil {
			return nil, err
		}
		return launchRedis(path, options{})
	})}
}

// Certs are those of a server with [TLS].
func (s *RedisServer) Certs() Certs { return certsIn(s.unit.place.dir) }

// URL returns the server's address as "redis://…", or "rediss://…" with [TLS],
// with the password if any.
func (s *RedisServer) URL() string { return s.url.String() }

func launchRedis(path string, o options) (*unit, error) {
	place, err := newSite("redis", nil)
	if err != nil {
		return nil, err
	}
	address := &url.URL{Scheme: "redis", Host: place.addr()}
	if o.password != "" {
		address.User = url.UserPassword("", o.password)
	}
	if o.tls {
		address.Scheme = "rediss"
		if err := makeCerts(place.dir); err != nil {
			return nil, errors.Join(err, place.close())
		}
	}
	conf := filepath.Join(place.dir, "redis.conf")
	if err := os.WriteFile(conf, redisConf(place, o), 0o600); err != nil {
		return nil, errors.Join(err, place.close())
	}
	u := &unit{
		name:  "redis-server",
		place: place,
		url:   address,
		command: func() *exec.Cmd {
			return &exec.Cmd{Path: path, Args: []string{path, conf}, SysProcAttr: attributes(nil)}
		},
		ready: func(int) error { return redisReady(place.dir, o) },
		quit:  syscall.SIGTERM,
		drop:  syscall.SIGKILL,
	}
	return u.start()
}

const (
	redisSocket   = "s"
	redisPatience = time.Second
)

func redisConf(place *site, o options) []byte {
	var conf strings.Builder
	line := func(name, value string) { fmt.Fprintf(&conf, "%s %s\n", name, value) }
	line("bind", "127.0.0.1")
	line("port", strconv.Itoa(place.port))
	line("dir", strconv.Quote(place.dir))
	line("unixsocket", strconv.Quote(filepath.Join(place.dir, redisSocket)))
	line("save", `""`)
	line("repl-diskless-sync-delay", "0")
	if o.durable {
		line("appendonly", "yes")
		line("appendfsync", "always")
	}
	if o.password != "" {
		line("requirepass", strconv.Quote(o.password))
	}
	if o.master != nil {
		secret, _ := o.master.url.User.Password()
		line("replicaof", strings.Replace(o.master.Addr(), ":", " ", 1))
		line("masterauth", strconv.Quote(secret))
	}
	if o.tls {
		c := certsIn(place.dir)
		line("port", "0")
		line("tls-port", strconv.Itoa(place.port))
		line("tls-ca-cert-file", strconv.Quote(c.CA))
		line("tls-cert-file", strconv.Quote(c.Cert))
		line("tls-key-file", strconv.Quote(c.Key))
		line("tls-auth-clients", "no")
	}
	for _, s := range o.settings {
		line(s.name, s.value)
	}
	return []byte(conf.String())
}

// redisReady asks on the socket in the server's own directory, where no other
// server can answer. Redis opens it after its port.
func redisReady(dir string, o options) error {
	if err := redisExpect(dir, o.password, "PING", "+PONG"); err != nil || o.master == nil {
		return err
	}
	return redisExpect(dir, o.password, "INFO replication", "master_link_status:up")
}

// redisExpect sends one command and wants a line of its reply to begin so.
func redisExpect(dir, password, command, want string) error {
	reply, err := redisAsk(dir, password, command)
	if err == nil && !strings.Contains("\n"+reply, "\n"+want) {
		err = fmt.Errorf("%s was answered %q, not %q", command, reply, want)
	}
	return err
}

// redisAsk sends one command and returns all that is answered.
func redisAsk(dir, password, command string) (string, error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Net: "unix", Name: filepath.Join(dir, redisSocket)})
	if err != nil {
		return "", err
	}
	defer conn.Close()
	ask := command + "\r\n"
	if password != "" {
		ask = fmt.Sprintf("AUTH %q\r\n", password) + ask
	}
	if err := conn.SetDeadline(time.Now().Add(redisPatience)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, ask); err != nil {
		return "", err
	}
	if err := conn.CloseWrite(); err != nil { // a Sentinel knows no QUIT
		return "", err
	}
	reply, err := io.ReadAll(conn)
	return string(reply), err
}
