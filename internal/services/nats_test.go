//go:build unix

package services_test

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-io/holdfast/internal/services"
)

func bucket(t testing.TB, url, name string) jetstream.KeyValue {
	t.Helper()
	js, err := jetstream.New(natsConn(t, url))
	must(t, js, err)
	kv, err := js.CreateOrUpdateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: name, LimitMarkerTTL: time.Minute})
	return must(t, kv, err)
}

func TestNATSKeyValue(t *testing.T) {
	t.Parallel()
	kv := bucket(t, services.NATS(t).URL(), "b")
	revision, err := kv.Create(t.Context(), "k", []byte("me"), jetstream.KeyTTL(time.Minute))
	if err != nil || revision != 1 {
		t.Fatalf("first create: revision %d, %v", revision, err)
	}
	if _, err := kv.Create(t.Context(), "k", []byte("you")); !errors.Is(err, jetstream.ErrKeyExists) {
		t.Errorf("second create: %v, want %v", err, jetstream.ErrKeyExists)
	}
}

func TestNATSKillAndRestart(t *testing.T) {
	t.Parallel()
	s := services.NATS(t, services.Durable())
	for round, end := range []func(){s.Kill, func() {}} {
		kv := bucket(t, s.URL(), "b")
		revision, err := kv.PutString(t.Context(), "k", "v")
		must(t, revision, err)
		pid := s.Pid()
		end()
		s.Restart()
		if s.Pid() == pid || alive(pid) {
			t.Errorf("round %d: pid %d after %d, which is alive: %v", round, s.Pid(), pid, alive(pid))
		}
		entry, err := bucket(t, s.URL(), "b").Get(t.Context(), "k")
		if err != nil || string(entry.Value()) != "v" || entry.Revision() != revision {
			t.Errorf("round %d: after restart %v, %v; want revision %d", round, entry, err, revision)
		}
	}
}

func TestNATSSettings(t *testing.T) {
	t.Parallel()
	closed := services.NATS(t, services.Setting("authorization", `{user: u, password: p}`))
	if conn, err := nats.Connect(closed.URL()); !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("without a password: %v, %v", conn, err)
	}
	plain := services.NATS(t, services.Setting("jetstream", "disabled"))
	js, err := jetstream.New(natsConn(t, plain.URL()))
	must(t, js, err)
	if _, err := js.AccountInfo(t.Context()); !errors.Is(err, jetstream.ErrJetStreamNotEnabled) {
		t.Errorf("with JetStream disabled: %v", err)
	}
}

func TestNATSStopAndCont(t *testing.T) {
	t.Parallel()
	s := services.NATS(t)
	conn := natsConn(t, s.URL())
	s.Stop()
	pong := result(func() (struct{}, error) { return struct{}{}, conn.FlushTimeout(patience) })
	silent(t, pong)
	s.Cont()
	arrives(t, pong)
}

func TestSharedNATSAndRedisAreOne(t *testing.T) {
	t.Parallel()
	if a, b := services.SharedNATS(t), services.SharedNATS(t); a.Pid() == 0 || a.Pid() != b.Pid() {
		t.Errorf("shared NATS runs as %d and %d", a.Pid(), b.Pid())
	}
	if a, b := services.SharedRedis(t), services.SharedRedis(t); a.Pid() == 0 || a.Pid() != b.Pid() {
		t.Errorf("shared Redis runs as %d and %d", a.Pid(), b.Pid())
	}
}
