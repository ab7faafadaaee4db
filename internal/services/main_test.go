//go:build unix

package services_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/redis/rueidis"
	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast/internal/services"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(services.Main(m)) }

// patience is how long something that must happen may take, silence how long a
// test listens to be satisfied that something does not.
const (
	patience = time.Minute
	silence  = 100 * time.Millisecond
)

func must[T any](t testing.TB, v T, err error) T {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func within(t testing.TB, limit time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

// eventually waits for a condition on something outside this process.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// result is what a call running on its own brings back.
func result[T any](call func() (T, error)) <-chan outcome[T] {
	c := make(chan outcome[T], 1)
	go func() {
		v, err := call()
		c <- outcome[T]{v, err}
	}()
	return c
}

type outcome[T any] struct {
	value T
	err   error
}

func silent[T any](t testing.TB, c <-chan outcome[T]) {
	t.Helper()
	select {
	case o := <-c:
		t.Fatalf("answered %v, %v; want silence", o.value, o.err)
	case <-time.After(silence):
	}
}

func arrives[T any](t testing.TB, c <-chan outcome[T]) T {
	t.Helper()
	select {
	case o := <-c:
		return must(t, o.value, o.err)
	case <-time.After(patience):
		t.Fatalf("no answer within %v", patience)
		panic("unreachable")
	}
}

// failure returns what a test that runs body fails with, "" when it passes.
func failure(t testing.TB, body func(testing.TB)) string {
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		body(r)
	}()
	<-done
	return r.message
}

type recorder struct {
	testing.TB
	message string
}

func (r *recorder) Fatal(args ...any) {
	r.message = fmt.Sprint(args...)
	runtime.Goexit()
}

func (r *recorder) Fatalf(format string, args ...any) { r.Fatal(fmt.Sprintf(format, args...)) }

func redisClient(t testing.TB, url string) rueidis.Client {
	t.Helper()
	option, err := rueidis.ParseURL(url)
	must(t, option, err)
	option.DisableCache, option.DisableRetry, option.ForceSingleClient = true, true, true
	client, err := rueidis.NewClient(option)
	must(t, client, err)
	t.Cleanup(client.Close)
	return client
}

// redis runs one command.
func redis(ctx context.Context, c rueidis.Client, command ...string) (string, error) {
	return c.Do(ctx, c.B().Arbitrary(command...).Build()).ToString()
}

func do(t testing.TB, c rueidis.Client, command ...string) string {
	t.Helper()
	reply, err := redis(t.Context(), c, command...)
	return must(t, reply, err)
}

func pgConn(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(within(t, patience), url)
	must(t, conn, err)
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func one[T any](t testing.TB, conn *pgx.Conn, query string) T {
	t.Helper()
	v, err := pgOne[T](within(t, patience), conn, query)
	return must(t, v, err)
}

func pgOne[T any](ctx context.Context, conn *pgx.Conn, query string) (T, error) {
	var v T
	err := conn.QueryRow(ctx, query, pgx.QueryExecModeSimpleProtocol).Scan(&v)
	return v, err
}

func natsConn(t testing.TB, url string) *nats.Conn {
	t.Helper()
	conn, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond), nats.Timeout(patience))
	must(t, conn, err)
	t.Cleanup(conn.Close)
	return conn
}
