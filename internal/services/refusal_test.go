//go:build unix

package services_test

import (
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/internal/services"
)

func TestMissingProgramSaysWhatToInstall(t *testing.T) {
	t.Setenv("PATH", "")
	t.Setenv("HOLDFAST_TEST_REDIS_URL", "")
	message := failure(t, func(t testing.TB) { services.Redis(t) })
	for _, want := range []string{"redis-server", "apt-get install redis-server", "HOLDFAST_TEST_REDIS_URL"} {
		if !strings.Contains(message, want) {
			t.Errorf("failure %q does not name %s", message, want)
		}
	}
}

func TestRunningServerStandsInForAMissingProgram(t *testing.T) {
	ours := services.Redis(t, services.Password("p"))
	t.Setenv("PATH", "")
	t.Setenv("HOLDFAST_TEST_REDIS_URL", ours.URL())
	s := services.Redis(t)
	if s.URL() != ours.URL() || s.Addr() != ours.Addr() || s.Pid() != 0 {
		t.Errorf("got %s at %s as pid %d, want %s, not ours", s.URL(), s.Addr(), s.Pid(), ours.URL())
	}
	do(t, redisClient(t, s.URL()), "PING")
	for name, body := range map[string]func(testing.TB){
		"kill":    func(t testing.TB) { services.Redis(t).Kill() },
		"stop":    func(t testing.TB) { services.Redis(t).Stop() },
		"restart": func(t testing.TB) { services.Redis(t).Restart() },
		"options": func(t testing.TB) { services.Redis(t, services.Durable()) },
		"several": func(t testing.TB) { services.RedisN(t, 3) },
	} {
		if message := failure(t, body); !strings.Contains(message, "HOLDFAST_TEST_REDIS_URL") {
			t.Errorf("%s: failure %q does not say that the server is not ours", name, message)
		}
	}
	if !alive(ours.Pid()) {
		t.Error("the server that is not ours was ended")
	}
}

func TestVariableWinsForSharedServers(t *testing.T) {
	for variable, url := range map[string]func(testing.TB) string{
		"HOLDFAST_TEST_REDIS_URL":    func(t testing.TB) string { return services.SharedRedis(t).URL() },
		"HOLDFAST_TEST_POSTGRES_URL": func(t testing.TB) string { return services.SharedPostgreSQL(t).URL("d") },
		"HOLDFAST_TEST_NATS_URL":     func(t testing.TB) string { return services.SharedNATS(t).URL() },
	} {
		t.Run(variable, func(t *testing.T) {
			t.Setenv(variable, "x://u:p@example.org:1234/d")
			if got := url(t); got != "x://u:p@example.org:1234/d" {
				t.Errorf("address %q", got)
			}
			t.Setenv(variable, "example.org:1234")
			if message := failure(t, func(t testing.TB) { url(t) }); !strings.Contains(message, variable) {
				t.Errorf("bad address: failure %q does not name %s", message, variable)
			}
		})
	}
}

func TestSharedServerCannotBeKilled(t *testing.T) {
	t.Parallel()
	s := services.SharedRedis(t)
	message := failure(t, func(t testing.TB) { services.SharedRedis(t).Kill() })
	if !strings.Contains(message, "shared") || !alive(s.Pid()) {
		t.Errorf("failure %q, server alive: %v", message, alive(s.Pid()))
	}
}

func TestStopOfADeadServerFails(t *testing.T) {
	t.Parallel()
	message := failure(t, func(t testing.TB) {
		s := services.Redis(t)
		s.Kill()
		s.Stop()
	})
	if !strings.Contains(message, "Restart it first") {
		t.Errorf("failure %q", message)
	}
}

func TestOptionsForOtherServersAreRefused(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]func(testing.TB){
		"Password":  func(t testing.TB) { services.PostgreSQL(t, services.Password("p")) },
		"ReplicaOf": func(t testing.TB) { services.NATS(t, services.ReplicaOf(services.SharedRedis(t))) },
		"Durable": func(t testing.TB) {
			services.PgBouncer(t, services.SharedPostgreSQL(t), services.SessionPooling, services.Durable())
		},
	} {
		if message := failure(t, body); !strings.Contains(message, name) {
			t.Errorf("%s: failure %q", name, message)
		}
	}
}
