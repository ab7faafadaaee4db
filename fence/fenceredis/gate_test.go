package fenceredis_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/redis/rueidis"
	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/fence"
	"github.com/holdfast-io/holdfast/fence/fenceredis"
	"github.com/holdfast-io/holdfast/internal/services"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(services.Main(m)) }

func client(t testing.TB, url string) rueidis.Client {
	t.Helper()
	opt := rueidis.MustParseURL(url)
	opt.DisableCache, opt.ForceSingleClient = true, true
	rc, err := rueidis.NewClient(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(rc.Close)
	return rc
}

// TestTwin: the script decides as the gate in memory does, with the same words.
func TestTwin(t *testing.T) {
	gate := fenceredis.Gate{Client: client(t, services.Redis(t).URL())}
	var twin fence.Gate
	for i := range 2000 {
		p := fence.Pass{Resource: fmt.Sprint("r", rand.IntN(3)), Token: fence.Token(1<<52 + rand.Uint64N(1+uint64(i/4))), Mode: fence.Mode(rand.IntN(2))}
		want, got := twin.Check(p.Resource, p.Token, p.Mode), gate.Check(t.Context(), p)
		if fmt.Sprint(want) != fmt.Sprint(got) || errors.Is(want, driver.ErrStale) != errors.Is(got, driver.ErrStale) {
			t.Fatalf("%+v: got %v; want %v", p, got, want)
		}
	}
}

const set = `redis.call('SET', KEYS[1], ARGV[1]) return ARGV[1]`

// TestStaleWritesNothing: the script of a stale token does not run.
func TestStaleWritesNothing(t *testing.T) {
	rc := client(t, services.Redis(t).URL())
	gate := fenceredis.Gate{Client: rc}
	write := func(token fence.Token, value string) error {
		m, err := gate.Run(t.Context(), fence.Pass{Resource: "a", Token: token}, set, []string{"{a}:x"}, []string{value})
		if err == nil {
			if got, _ := m.ToString(); got != value {
				t.Errorf("the script returned %q; want %q", got, value)
			}
		}
		return err
	}
	if err := errors.Join(write(5, "five"), write(5, "five again"), write(7, "seven")); err != nil {
		t.Fatal(err)
	}
	if err := write(6, "six"); !errors.Is(err, driver.ErrStale) {
		t.Fatalf("a stale token: %v", err)
	}
	if got, _ := rc.Do(t.Context(), rc.B().Get().Key("{a}:x").Build()).ToString(); got != "seven" {
		t.Errorf("the value is %q", got)
	}
}

// TestNewestWins: of writers at once, what stays is the newest token's value.
func TestNewestWins(t *testing.T) {
	rc := client(t, services.Redis(t).URL())
	gate := fenceredis.Gate{Client: rc}
	var all sync.WaitGroup
	for token := fence.Token(1); token <= 50; token++ {
		all.Go(func() {
			_, err := gate.Run(t.Context(), fence.Pass{Resource: "a", Token: token}, set, []string{"{a}:x"}, []string{fmt.Sprint(token)})
			if err != nil && !errors.Is(err, driver.ErrStale) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got, _ := rc.Do(t.Context(), rc.B().Get().Key("{a}:x").Build()).ToString(); got != "50" {
		t.Errorf("the value is %q; the newest token wrote 50", got)
	}
}

func TestRefusesBadInput(t *testing.T) {
	server := services.Redis(t)
	gate := fenceredis.Gate{Client: client(t, server.URL())}
	for _, p := range []fence.Pass{{Resource: "", Token: 1}, {Resource: "a{b", Token: 1}, {Resource: "a\x00", Token: 1}, {Resource: "\xff", Token: 1}, {Resource: strings.Repeat("n", 513), Token: 1},
		{Resource: "a", Token: 0}, {Resource: "a", Token: 1 << 53}, {Resource: "a", Token: 1, Mode: 7}} {
		if err := gate.Check(t.Context(), p); !errors.Is(err, fs.ErrInvalid) || strings.Contains(err.Error(), "%!") {
			t.Errorf("%+v: %v", p, err)
		}
	}
	_, err := gate.Run(t.Context(), fence.Pass{Resource: "a", Token: 1}, `return redis.call('INCR', fenced)`, nil, nil)
	if err == nil || errors.Is(err, driver.ErrStale) || !strings.Contains(err.Error(), "WRONGTYPE") {
		t.Errorf("a script's own error: %v", err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := gate.Check(over, fence.Pass{Resource: "a", Token: 1}); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled context: %v", err)
	}
	server.Kill()
	if err := gate.Check(t.Context(), fence.Pass{Resource: "a", Token: 1}); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("a dead server: %v", err)
	}
}

// TestNothingListens: a script that was not sent, since there is no connection, has certainly not run.
func TestNothingListens(t *testing.T) {
	server := services.Redis(t)
	gate := fenceredis.Gate{Client: client(t, server.URL())}
	server.Kill()
	var err error
	for range 1000 { // the first may have been on its way
		if _, err = gate.Run(t.Context(), fence.Pass{Resource: "a", Token: 1}, set, []string{"{a}:x"}, []string{"1"}); errors.Is(err, syscall.ECONNREFUSED) {
			break
		}
	}
	e, ok := errors.AsType[*driver.Error](err)
	if !errors.Is(err, syscall.ECONNREFUSED) || !ok || !errors.Is(err, driver.ErrUnavailable) || e.Outcome != driver.NotDone {
		t.Errorf("got %v", err)
	}
}
