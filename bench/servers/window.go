package servers

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A window is the part of a turn that counts. Callers run before it opens and
// until it closes, and what ends while it is open counts: work that takes long is
// neither left out at its end nor counted twice.
type window struct {
	state atomic.Int32
	some  atomic.Bool // something counted
}

const (
	warming = iota
	counting
	over
)

// counts reports whether what has just ended counts.
func (w *window) counts() bool {
	if w.state.Load() != counting {
		return false
	}
	w.some.Store(true)
	return true
}

// A meter tells the processor time used so far, by servers and by this program.
type meter func() (server, client time.Duration)

// cost is what a window took.
type cost struct{ length, server, client time.Duration }

// run has each caller repeat itself until the window has been open for d, or as
// many times that as it takes for something to count, or until one fails. It opens
// after a quarter of d.
func (w *window) run(callers []func() error, d time.Duration, spent meter) (cost, error) {
	var all sync.WaitGroup
	failed := make(chan error, len(callers))
	for _, f := range callers {
		all.Go(func() {
			if err := w.repeat(f); err != nil {
				failed <- err
			}
		})
	}
	c, err := w.watch(d, failed, spent)
	all.Wait()
	return c, err
}

func (w *window) repeat(f func() error) error {
	for w.state.Load() != over {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

// watch opens and closes the window.
func (w *window) watch(d time.Duration, failed <-chan error, spent meter) (c cost, err error) {
	defer w.state.Store(over)
	select {
	case err = <-failed:
		return c, err
	case <-time.After(d / 4):
	}
	server, client := spent()
	began := time.Now()
	w.state.Store(counting)
	for !w.some.Load() || time.Since(began) < d {
		select {
		case err = <-failed:
			return c, err
		case <-time.After(d):
		}
	}
	w.state.Store(over)
	c.length = time.Since(began)
	c.server, c.client = spent()
	c.server, c.client = c.server-server, c.client-client
	return c, nil
}

// figures of n things done at this cost, with how long some of them took.
func (c cost) figures(n int, took []time.Duration) figures {
	f := figures{rate: float64(n) / c.length.Seconds()}
	if n == 0 {
		return f
	}
	f.server, f.client = micros(c.server)/float64(n), micros(c.client)/float64(n)
	if len(took) > 0 {
		slices.Sort(took)
		f.p50, f.p99 = micros(took[len(took)/2])/1000, micros(took[len(took)*99/100])/1000
	}
	return f
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// each has every caller repeat itself, all at a time.
func each(callers []func() error, spent meter) turn {
	return func(d time.Duration) (figures, error) {
		w := &window{}
		took := make([][]time.Duration, len(callers))
		timed := make([]func() error, len(callers))
		for i, f := range callers {
			timed[i] = func() error {
				began := time.Now()
				err := f()
				if err == nil && w.counts() {
					took[i] = append(took[i], time.Since(began))
				}
				return err
			}
		}
		c, err := w.run(timed, d, spent)
		all := slices.Concat(took...)
		return c.figures(len(all), all), err
	}
}
