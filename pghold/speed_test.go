package pghold_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/services"
)

// rate runs callers for a while and returns how many rounds they did in a second.
func rate(d time.Duration, callers []func() error) (float64, error) {
	var rounds atomic.Int64
	var failed atomic.Pointer[error]
	var all sync.WaitGroup
	began := time.Now()
	for _, round := range callers {
		all.Go(func() {
			for time.Since(began) < d {
				if err := round(); err != nil {
					failed.Store(&err)
					return
				}
				rounds.Add(1)
			}
		})
	}
	all.Wait()
	if err := failed.Load(); err != nil {
		return 0, *err
	}
	return float64(rounds.Load()) / time.Since(began).Seconds(), nil
}

// pairs are callers of programs, each of which takes a mutex and gives it back.
func pairs(ctx context.Context, spaces []*holdfast.Space, each int, name func(i int) string) (callers []func() error) {
	for range each {
		for _, s := range spaces {
			m := s.Mutex(name(len(callers)))
			callers = append(callers, func() error { return released(m.Acquire(ctx)) })
		}
	}
	return callers
}

func same(int) string { return "one name" }

// barePairs are callers that do the same by PostgreSQL's functions, on a connection each.
func barePairs(t testing.TB, url string, n int, key func(i int) int64) (callers []func() error) {
	for i := range n {
		conn := connect(t, url)
		callers = append(callers, func() error {
			if _, err := conn.Exec(t.Context(), "select pg_advisory_lock($1)", key(i)); err != nil {
				return err
			}
			_, err := conn.Exec(t.Context(), "select pg_advisory_unlock($1)", key(i))
			return err
		})
	}
	return callers
}

// TestHandOverDoesNotCollapse: two programs with two callers each hand a mutex on about
// as fast as two with one each.
func TestHandOverDoesNotCollapse(t *testing.T) {
	url := database(t)
	spaces := []*holdfast.Space{open(t, url), open(t, url)}
	var ratios []float64
	for range 3 {
		one := must(rate(500*time.Millisecond, pairs(t.Context(), spaces, 1, same)))(t)
		two := must(rate(500*time.Millisecond, pairs(t.Context(), spaces, 2, same)))(t)
		t.Logf("%.0f grants/s with one caller a program, %.0f with two", one, two)
		ratios = append(ratios, two/one)
	}
	if best := slices.Max(ratios); best < 0.3 {
		t.Errorf("with two callers a program a mutex is handed on %.2f times as fast as with one", best)
	}
}

// processorTime is what this process and the server's have used, in hundredths of a
// second.
func processorTime(t testing.TB, server int) time.Duration {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	check(t, err)
	var ticks int64
	for _, file := range files {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		_, after, _ := strings.Cut(string(stat), ") ")
		fields := strings.Fields(after)
		parent, _ := strconv.Atoi(fields[1])
		if parent == server || file == fmt.Sprintf("/proc/%d/stat", os.Getpid()) {
			user, _ := strconv.ParseInt(fields[11], 10, 64)
			system, _ := strconv.ParseInt(fields[12], 10, 64)
			ticks += user + system
		}
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// BenchmarkBesideBare prints medians of the ratios of rounds to bare pg_advisory_lock, and
// processor time for a grant, server and program together.
func BenchmarkBesideBare(b *testing.B) {
	pg := services.PostgreSQL(b, services.Setting("max_connections", "300"))
	url := pg.URL(pg.CreateDatabase(b))
	program := func(n int) (list []*holdfast.Space) {
		for range n {
			list = append(list, open(b, url))
		}
		return list
	}
	own := func(i int) string { return fmt.Sprintf("name %d", i) }
	for _, c := range []struct {
		name           string
		programs, each int
		names          func(int) string
		bare           []func() error
	}{
		{"one caller", 1, 1, own, barePairs(b, url, 1, func(int) int64 { return 1 })},
		{"64 callers, one connection", 1, 64, own, []func() error{barePairs(b, url, 1, func(int) int64 { return 1 })[0]}},
		{"hand-over, 8 programs", 8, 1, same, barePairs(b, url, 8, func(int) int64 { return 7 })},
		{"hand-over, 8 waiters, one program", 1, 8, same, barePairs(b, url, 8, func(int) int64 { return 8 })},
		{"hand-over, 2 programs x 8", 2, 8, same, barePairs(b, url, 16, func(int) int64 { return 10 })},
		{"hand-over, 64 waiters, one program", 1, 64, same, barePairs(b, url, 64, func(int) int64 { return 9 })},
	} {
		b.Run(c.name, func(b *testing.B) {
			callers := pairs(b.Context(), program(c.programs), c.each, c.names)
			must(rate(200*time.Millisecond, callers))(b)
			const d = 400 * time.Millisecond
			var ratios, ours []float64
			var spent [2]time.Duration
			var grants [2]float64
			for b.Loop() {
				var rates [2]float64
				for i, callers := range [][]func() error{c.bare, callers} {
					before := processorTime(b, pg.Pid())
					rates[i] = must(rate(d, callers))(b)
					spent[i] += processorTime(b, pg.Pid()) - before
					grants[i] += rates[i] * d.Seconds()
				}
				ratios, ours = append(ratios, rates[1]/rates[0]), append(ours, rates[1])
			}
			slices.Sort(ratios)
			slices.Sort(ours)
			b.ReportMetric(ratios[len(ratios)/2], "ratio")
			b.ReportMetric(ours[len(ours)/2], "grants/s")
			b.ReportMetric(float64(spent[0].Microseconds())/grants[0], "bare-cpu-µs")
			b.ReportMetric(float64(spent[1].Microseconds())/grants[1], "cpu-µs")
		})
	}
}
