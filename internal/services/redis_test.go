//go:build unix

package services_test

import (
	"context"
	"strings"
	"testing"

	"github.com/redis/rueidis"

	"github.com/holdfast-io/holdfast/internal/services"
)

func TestRedisAnswers(t *testing.T) {
	t.Parallel()
	s := services.Redis(t)
	c := redisClient(t, s.URL())
	info := do(t, c, "INFO", "server")
	if want := "tcp_port:" + s.Addr()[strings.LastIndex(s.Addr(), ":")+1:]; !strings.Contains(info, want+"\r\n") {
		t.Errorf("INFO of another server: no %s in %s", want, info)
	}
}

func TestRedisNAreIndependent(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, s := range services.RedisN(t, 3) {
		c := redisClient(t, s.URL())
		if got, err := redis(t.Context(), c, "GET", "k"); !rueidis.IsRedisNil(err) {
			t.Errorf("fresh server has k = %q, %v", got, err)
		}
		do(t, c, "SET", "k", "v")
		seen[s.Addr()] = true
	}
	if len(seen) != 3 {
		t.Errorf("addresses %v, want 3", seen)
	}
}

func TestRedisKillAndRestart(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		opts []services.Option
		want string
	}{
		"plain forgets":     {nil, ""},
		"durable remembers": {[]services.Option{services.Durable()}, "v"},
	} {
		t.Run(name, func(t *testing.T) {
			s := services.Redis(t, test.opts...)
			pid, addr := s.Pid(), s.Addr()
			do(t, redisClient(t, s.URL()), "SET", "k", "v")
			s.Kill()
			s.Kill()
			if s.Pid() != 0 || alive(pid) {
				t.Fatalf("pid %d (was %d) lives after Kill", s.Pid(), pid)
			}
			s.Restart()
			if s.Pid() == pid || s.Addr() != addr {
				t.Errorf("restarted as pid %d at %s, was pid %d at %s", s.Pid(), s.Addr(), pid, addr)
			}
			got, err := redis(t.Context(), redisClient(t, s.URL()), "GET", "k")
			if got != test.want || err != nil && !rueidis.IsRedisNil(err) {
				t.Errorf("k = %q, %v after restart; want %q", got, err, test.want)
			}
		})
	}
}

// TestRedisOrderlyRestartOfAStoppedServer has Redis write its data only at an
// orderly end, which a frozen server reaches only after it was thawed.
func TestRedisOrderlyRestartOfAStoppedServer(t *testing.T) {
	t.Parallel()
	s := services.Redis(t, services.Setting("save", "3600 1"))
	pid := s.Pid()
	do(t, redisClient(t, s.URL()), "SET", "k", "v")
	s.Stop()
	s.Restart()
	if got := do(t, redisClient(t, s.URL()), "GET", "k"); got != "v" || s.Pid() == pid {
		t.Errorf("k = %q in pid %d (was %d)", got, s.Pid(), pid)
	}
}

func TestRedisStopAndCont(t *testing.T) {
	t.Parallel()
	s := services.Redis(t)
	c := redisClient(t, s.URL())
	do(t, c, "PING")
	s.Stop()
	pong := result(func() (string, error) { return redis(t.Context(), c, "PING") })
	silent(t, pong)
	s.Cont()
	if got := arrives(t, pong); got != "PONG" {
		t.Errorf("PING = %q", got)
	}
}

func TestRedisPassword(t *testing.T) {
	t.Parallel()
	const secret = `p@ss "word"/`
	s := services.Redis(t, services.Password(secret))
	do(t, redisClient(t, s.URL()), "PING")
	if _, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.Addr()}, DisableCache: true}); err == nil {
		t.Error("connected without the password")
	}
}

func TestRedisReplica(t *testing.T) {
	t.Parallel()
	master := services.Redis(t, services.Password("m"))
	do(t, redisClient(t, master.URL()), "SET", "first", "1")
	replica := services.Redis(t, services.ReplicaOf(master))
	c := redisClient(t, replica.URL())
	if got := do(t, c, "GET", "first"); got != "1" {
		t.Errorf("replica has first = %q", got)
	}
	do(t, redisClient(t, master.URL()), "SET", "after", "2")
	eventually(t, "replication", func() bool {
		got, _ := redis(context.Background(), c, "GET", "after")
		return got == "2"
	})
}

func TestRedisSetting(t *testing.T) {
	t.Parallel()
	s := services.Redis(t, services.Setting("maxmemory", "7mb"), services.Setting("save", "60 1 300 2"))
	c := redisClient(t, s.URL())
	for name, want := range map[string]string{"maxmemory": "7340032", "save": "60 1 300 2"} {
		got, err := c.Do(t.Context(), c.B().ConfigGet().Parameter(name).Build()).AsStrMap()
		if err != nil || got[name] != want {
			t.Errorf("%s = %q, %v; want %q", name, got[name], err, want)
		}
	}
}

func TestBadSettingSaysWhy(t *testing.T) {
	t.Parallel()
	message := failure(t, func(t testing.TB) { services.Redis(t, services.Setting("no-such-thing", "1")) })
	if !strings.Contains(message, "no-such-thing") || !strings.Contains(message, "redis-server") {
		t.Errorf("failure %q does not show the server's complaint", message)
	}
}
