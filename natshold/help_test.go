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
	s, err := answered(func() (*holdfast.Space, error) { return holdfast.Open(t.Context(), url, opts...) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// answered opens what a server has that a busy machine may hold up for longer than Open waits.
func answered[T any](open func() (T, error)) (T, error) {
	return answeredOr(func(error) bool { return false }, open)
}

// answeredOr is answered, unless the server says what is meant.
func answeredOr[T any](meant func(error) bool, open func() (T, error)) (T, error) {
	s, err := open()
	for began := time.Now(); errors.Is(err, holdfast.ErrUnavailable) && !meant(err) && time.Since(began) < time.Minute; {
		<-time.After(100 * time.Millisecond)
		s, err = open()
	}
	return s, err
}

// connect is a plain connection.
func connect(t testing.TB, url string) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(url, nats.ReconnectBufSize(-1), nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond), nats.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

func streams(t testing.TB, nc *nats.Conn) nats.JetStreamContext {
	t.Helper()
	js, err := nc.JetStream(nats.MaxWait(time.Minute))
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
