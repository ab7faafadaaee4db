package holdfast_test

import (
	"context"
	"testing"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

// bare grants everything at once, so that only the layer above is measured.
type bare struct {
	driver.Base
	session *driver.Session
	token   uint64
}

func newBare() *bare { return &bare{session: driver.NewSession(driver.SessionID{1}, driver.Spec{})} }

func (b *bare) Info() driver.Info { return driver.Info{Scheme: "bare"} }

func (b *bare) Acquire(context.Context, *driver.Request) (driver.Grant, error) {
	b.token++
	return driver.Grant{Token: driver.Token(b.token), Session: b.session, Handle: b}, nil
}

func (b *bare) Release(context.Context) error { return nil }

func (b *bare) Change(context.Context, driver.Change) (driver.Grant, error) {
	return driver.Grant{}, nil
}

func BenchmarkMutexPair(b *testing.B) {
	s := openOn(b, newBare())
	m, ctx := s.Mutex("jobs/nightly"), b.Context()
	b.ReportAllocs()
	for b.Loop() {
		h, err := m.Acquire(ctx)
		if err != nil {
			b.Fatal(err)
		}
		if err := h.Release(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkMutexDo(b *testing.B) {
	s := openOn(b, newBare())
	m, ctx := s.Mutex("jobs/nightly"), b.Context()
	f := func(context.Context, *holdfast.Hold) error { return nil }
	b.ReportAllocs()
	for b.Loop() {
		if err := m.Do(ctx, f); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkHoldErr(b *testing.B) {
	s := openOn(b, newBare())
	h, err := s.Mutex("jobs/nightly").Acquire(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := h.Err(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkBind(b *testing.B) {
	s := openOn(b, newBare())
	h, err := s.Mutex("jobs/nightly").Acquire(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		parent, cancel := context.WithCancel(b.Context())
		h.Bind(parent)
		cancel()
	}
}

// The budget of this layer: the whole in-memory pair may take 15 allocations.
func TestMutexPair_Allocations(t *testing.T) {
	s := openOn(t, newBare())
	m, ctx := s.Mutex("jobs/nightly"), t.Context()
	n := testing.AllocsPerRun(1000, func() {
		h, err := m.Acquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		_ = h.Release()
	})
	if n > 8 {
		t.Errorf("Acquire and Release allocate %v times", n)
	}
}
