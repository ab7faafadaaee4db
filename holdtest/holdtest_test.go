package holdtest_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/holdtest"
)

func TestSpace_FreshAndClosed(t *testing.T) {
	var s *holdfast.Space
	t.Run("first", func(t *testing.T) {
		s = holdtest.Space(t)
		if _, err := s.Counter("n").Add(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
	})
	if err := s.Ping(t.Context()); !errors.Is(err, holdfast.ErrClosed) {
		t.Errorf("after its test the Space answers %v", err)
	}
	if n, err := holdtest.Space(t).Counter("n").Load(t.Context()); n != 0 || err != nil {
		t.Errorf("a fresh Space has %d, %v", n, err)
	}
}

func TestSpace_Options(t *testing.T) {
	s := holdtest.Space(t, holdfast.Owner("me"))
	h, err := s.Mutex("a").Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer h.Release()
	_, err = s.Mutex("a").TryAcquire(t.Context())
	if e, ok := errors.AsType[*holdfast.Error](err); !ok || len(e.Holders) != 1 || e.Holders[0].Owner != "me" {
		t.Errorf("held by %v", err)
	}
}

func TestLose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := holdtest.Space(t)
		cause := errors.New("pulled the plug")
		err := s.Mutex("a").Do(t.Context(), func(ctx context.Context, h *holdfast.Hold) error {
			holdtest.Lose(h, cause)
			<-ctx.Done()
			return ctx.Err()
		})
		if !errors.Is(err, holdfast.ErrLost) || !errors.Is(err, cause) {
			t.Errorf("Do returned %v", err)
		}
		h, err := s.Mutex("a").TryAcquire(t.Context())
		if err != nil {
			t.Fatalf("after Do the name is still held: %v", err)
		}
		holdtest.Lose(h, nil)
		if err := h.Release(); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("Release: %v", err)
		}
	})
}

func TestStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := holdtest.Space(t, holdfast.TTL(10*time.Second))
		h, err := s.Mutex("a").Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		resume := holdtest.Stall(s)
		time.Sleep(5 * time.Second)
		resume()
		resume()
		time.Sleep(time.Minute)
		if err := h.Err(); err != nil {
			t.Fatalf("a pause within the TTL lost the hold: %v", err)
		}
		defer holdtest.Stall(s)()
		time.Sleep(10 * time.Second)
		if err := h.Err(); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("after a TTL without renewals: %v", err)
		}
	})
}

func TestStall_Elsewhere(t *testing.T) {
	s, err := holdfast.New(driver.Base{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	defer func() {
		if r, _ := recover().(string); !strings.Contains(r, "cannot be stalled") {
			t.Errorf("panic %q", r)
		}
	}()
	holdtest.Stall(s)
}
