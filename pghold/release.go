package pghold

import (
	"context"

	"github.com/holdfast-io/holdfast/driver"
)

// releases are claims of one semaphore, latch or barrier that are given back in one statement:
// those that came while the link had something else to do. The last of very many would else not be
// answered in time.
type releases struct {
	ids  []int64 // guarded by the client's mutex
	done chan struct{}
	were map[int64]bool // those that were there; if err is nil
	err  error
}

// maxReleases bounds what is given back in one statement, and with it how long that takes.
const maxReleases = 1000

// ungather gives the claim back. again: an earlier attempt may have done it.
func (cl *rowClaim) ungather(again bool) error {
	b, first := cl.l.joinReleases(cl)
	if first {
		cl.c.releaseAll(cl.l, cl.key, b)
	}
	<-b.done
	if b.err == nil && !again && !b.were[cl.id] {
		return refuse(driver.ErrLost, "it had ended before")
	}
	return b.err
}

// joinReleases adds a claim to those of its key that wait for the link. first: the caller has to
// release them.
func (l *pgLink) joinReleases(cl *rowClaim) (b *releases, first bool) {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	b = l.releases[cl.key]
	if first = b == nil || len(b.ids) == maxReleases; first {
		b = &releases{done: make(chan struct{})}
		l.releases[cl.key] = b
	}
	b.ids = append(b.ids, cl.id)
	return b, first
}

// closeReleases is the end of a batch: the next claim begins another.
func (l *pgLink) closeReleases(k Key, b *releases) []int64 {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	if l.releases[k] == b {
		delete(l.releases, k)
	}
	return b.ids
}

// releaseAll gives a batch back when the link is free.
func (c *client) releaseAll(l *pgLink, k Key, b *releases) {
	ctx, cancel := context.WithTimeout(context.Background(), c.opts.Timeout)
	defer cancel()
	var were []int64
	gone := false
	b.err = c.onHome(ctx, l, func(ctx context.Context, q querier) error {
		err := q.QueryRow(ctx, dropSQL, c.args(k.space(), k.n, l.closeReleases(k, b), c.me(l))...).Scan(&were)
		gone = isRemoved(err) && c.tablesAreGone(ctx, q)
		return err
	}, nil)
	l.closeReleases(k, b)         // if it was not asked
	if isRemoved(b.err) && gone { // which may still be written if b.err is that no answer came
		b.err = errRemoved
	}
	if b.err == nil {
		b.were = map[int64]bool{}
		for _, id := range were {
			b.were[id] = true
		}
	}
	close(b.done)
}
