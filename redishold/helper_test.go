package redishold_test

import (
	"crypto/rand"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

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
