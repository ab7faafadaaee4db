package size

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
)

// BenchmarkWaits is watches beyond the limit of a connection, and of a node: how soon that is
// told, and what other calls see of it.
func BenchmarkWaits(b *testing.B) { bench(b, tooMany) }

func tooMany(tb testing.TB, s size) figures {
	perStream := s.waits / 8
	g := start(tb, s.nodes, "--max-waits", strconv.Itoa(s.waits), "--max-streams", strconv.Itoa(perStream))
	by := g.bystander(g.leastTTL())
	seen := figures{}
	others := by.during(func() {
		seen["stream-ms"], seen["stream-unnamed"] = g.crowd("--max-streams").beyond("--max-streams")
		seen["wait-ms"], seen["wait-unnamed"] = g.crowd("--max-waits").beyond("--max-waits")
	})
	seen["beside-p99-ms"], seen["beside-max-ms"] = ms(rank(others.Took, 0.99)), ms(rank(others.Took, 1))
	seen["lost"] = float64(others.Lost + others.Failed)
	return seen
}

// crowd opens watches, on one connection after the other, until one is refused for a limit. The
// client that was refused is returned.
func (g *group) crowd(limit string) *watches {
	g.tb.Helper()
	for {
		w := &watches{tb: g.tb, space: g.space()}
		err := w.add()
		for ; err == nil; err = w.add() {
		}
		if strings.Contains(err.Error(), limit) {
			return w
		}
		if !strings.Contains(err.Error(), "--max-streams") {
			g.tb.Fatal(err)
		}
	}
}

// watches are those of one client, each of a prefix of its own.
type watches struct {
	tb    testing.TB
	space *holdfast.Space
	n     atomic.Int64
}

// add begins another watch, and returns when it is ready, or why there is none.
func (w *watches) add() error {
	began := make(chan error, 1)
	go func() {
		for _, err := range w.space.Watch(w.tb.Context(), fmt.Sprintf("w/%d/", w.n.Add(1)), 0) {
			select {
			case began <- err:
			default: // it has begun
			}
		}
	}()
	select {
	case err := <-began:
		return err
	case <-w.tb.Context().Done():
		return w.tb.Context().Err()
	}
}

// beyond begins watches of which there are too many already: the longest time until one is
// refused, and how many are not, or by an error that does not name the limit.
func (w *watches) beyond(limit string) (longest, unnamed float64) {
	w.tb.Helper()
	const tries = 10
	for range tries {
		began := time.Now()
		err := w.add()
		longest = max(longest, ms(time.Since(began)))
		if !errors.Is(err, holdfast.ErrExhausted) || !strings.Contains(err.Error(), limit) {
			w.tb.Logf("a watch too many: %v", err)
			unnamed++
		}
	}
	done(w.tb, w.space.Mutex("of the same client").Do(w.tb.Context(), func(context.Context, *holdfast.Hold) error { return nil }))
	return longest, unnamed
}
