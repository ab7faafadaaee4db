package redishold_test

import (
	"context"
	"crypto/rand"
	"errors"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

// admin is a plain client of a server.
func admin(t testing.TB, url string) rueidis.Client {
	t.Helper()
	opt := rueidis.MustParseURL(url)
	opt.DisableCache, opt.AlwaysPipelining, opt.ForceSingleClient = true, true, true
	rc, err := rueidis.NewClient(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(rc.Close)
	return rc
}

func do(t testing.TB, rc rueidis.Client, words ...string) string {
	t.Helper()
	m, err := rc.Do(context.Background(), rc.B().Arbitrary(words...).Build()).ToMessage()
	if err != nil && !rueidis.IsRedisNil(err) {
		t.Fatal(err)
	}
	if n, err := m.ToInt64(); err == nil {
		return strconv.FormatInt(n, 10)
	}
	s, err := m.ToString()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func eventually(t testing.TB, missing string, look func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !look(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(missing)
		}
	}
}

func open(t testing.TB, url string, opts ...holdfast.Option) *holdfast.Space {
	t.Helper()
	s, err := holdfast.Open(t.Context(), url, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// raw opens a driver without the library around it.
func raw(t testing.TB, url string) driver.Driver {
	t.Helper()
	d, err := driver.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close(t.Context()) })
	return d
}

// soLong tries to hold something for a short TTL until the server answers in time: on a busy machine it may take longer than
// that TTL leaves.
func soLong(t testing.TB, acquire func() (*holdfast.Hold, error)) (h *holdfast.Hold) {
	t.Helper()
	eventually(t, "the server does not answer in time", func() (ok bool) {
		var err error
		if h, err = acquire(); err != nil && !errors.Is(err, holdfast.ErrUnavailable) && !errors.Is(err, holdfast.ErrLost) {
			t.Fatal(err)
		}
		return err == nil
	})
	keep(t, h)
	return h
}

// keep has a hold last as long as the test: one that nobody can reach is given back.
func keep(t testing.TB, h *holdfast.Hold) {
	t.Cleanup(func() { runtime.KeepAlive(h) })
}

// unique is a name that no other test uses.
func unique(t testing.TB) string { return t.Name() + "/" + rand.Text()[:8] }

func newID() (id [16]byte) {
	_, _ = rand.Read(id[:])
	return id
}

// mutex is a request for one, without a wait.
func mutex(name string) *driver.Request {
	return &driver.Request{
		ID: newID(), Wants: []driver.Want{{Name: name, Kind: driver.Mutex}}, Spec: driver.Spec{TTL: 30 * time.Second},
		Try: true, Lost: func(error) {},
	}
}
