package natshold_test

import (
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/holdfast-io/holdfast"
)

func open(t testing.TB, url string, opts ...holdfast.Option) *holdfast.Space {
	t.Helper()
	s, err := holdfast.Open(t.Context(), url, opts...)
	for began := time.Now(); errors.Is(err, holdfast.ErrUnavailable) && time.Since(began) < time.Minute; { // a server that has just begun, on a busy machine
		<-time.After(100 * time.Millisecond)
		s, err = holdfast.Open(t.Context(), url, opts...)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// connect is a plain connection.
func connect(t testing.TB, url string) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(url, nats.ReconnectBufSize(-1), nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

func streams(t testing.TB, nc *nats.Conn) nats.JetStreamContext {
	t.Helper()
	js, err := nc.JetStream()
	check(t, err)
	return js
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// must keeps what it gives as long as the test: a hold that nobody can reach is given back.
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		check(t, err)
		t.Cleanup(func() { runtime.KeepAlive(v) })
		return v
	}
}

func second[T any](_ T, err error) error { return err }

func eventually(t testing.TB, missing string, look func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !look(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(missing)
		}
	}
}
