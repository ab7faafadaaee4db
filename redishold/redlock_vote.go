package redishold

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/gaveup"
)

// ballot is one server's answer.
type ballot struct {
	node  int
	reply []string // nil: it could not be asked
	err   error
}

// taken: the server has the lock, or may have it.
func (b *ballot) taken() bool { return b.reply == nil || b.reply[0] == "ok" }

// vote is a question to all servers at once.
type vote struct {
	n       int
	began   time.Time
	ballots chan ballot
	got     []ballot
	yes     int
	no      int
	faults  int
}

func (r *redlock) newVote() *vote {
	return &vote{n: len(r.nodes), began: time.Now(), ballots: make(chan ballot, len(r.nodes))}
}

// vote asks every server beside the others. ask runs in the background: it has
// to end with its context.
func (r *redlock) vote(ctx context.Context, ask func(context.Context, rueidis.Client) ([]string, error)) *vote {
	return r.voteUntil(ctx, func() {}, ask)
}

// voteUntil calls stop when the last server has answered.
func (r *redlock) voteUntil(ctx context.Context, stop func(), ask func(context.Context, rueidis.Client) ([]string, error)) *vote {
	v := r.newVote()
	var left atomic.Int32
	left.Store(int32(v.n))
	cast := func(b ballot) {
		v.ballots <- b
		if left.Add(-1) == 0 {
			stop()
		}
	}
	for i, n := range r.nodes {
		one := func() {
			b := ballot{node: i}
			rc, err := n.client(ctx)
			if err == nil {
				b.reply, err = ask(ctx, rc)
			}
			if b.err = err; err != nil {
				b.reply = nil
			}
			cast(b)
		}
		if !r.spawn(one) {
			cast(ballot{node: i, err: errClosed})
		}
	}
	return v
}

// decide counts until a majority said yes, until there can be none, or until
// ctx ends.
func (v *vote) decide(ctx context.Context) {
	for v.yes < majority(v.n) && v.no+v.faults < hopeless(v.n) {
		select {
		case b := <-v.ballots:
			v.count(b)
		case <-ctx.Done():
			v.faults = v.n - v.yes - v.no
			return
		}
	}
}

func (v *vote) count(b ballot) {
	v.got = append(v.got, b)
	switch {
	case b.reply == nil:
		v.faults++
	case b.reply[0] == "ok":
		v.yes++
	default:
		v.no++
	}
}

func (v *vote) passed() bool { return v.yes >= majority(v.n) }

// refused: so many said no that nobody else's answer would matter.
func (v *vote) refused() bool { return !v.passed() && v.no >= hopeless(v.n) }

// rest counts those that answer little later than the majority did: as long again,
// and a moment.
func (v *vote) rest(ctx context.Context) {
	late := time.NewTimer(time.Since(v.began) + moment)
	defer late.Stop()
	for len(v.got) < v.n {
		select {
		case b := <-v.ballots:
			v.count(b)
		case <-late.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// moment is how long the others are waited for at least.
const moment = 20 * time.Millisecond

// split: of the servers that named a holder no majority named the same, and those
// that cannot would not make one. One that is late can say so the next time.
func (v *vote) split() bool {
	count, most, unknown := map[string]int{}, 0, 0
	for _, b := range v.got {
		if b.reply == nil {
			unknown++
		} else if b.reply[0] == "held" {
			count[b.reply[1]]++
			most = max(most, count[b.reply[1]])
		}
	}
	return most > 0 && most+unknown < majority(v.n)
}

// unfit is why a server does not count, if there is one.
func (v *vote) unfit() error {
	for _, b := range v.got {
		if errors.Is(b.err, errors.ErrUnsupported) {
			return driver.Errorf("open", "", errors.ErrUnsupported, "server %d: %w", b.node+1, b.err)
		}
	}
	return nil
}

// cause is why a server did not answer.
func cause(err error) error {
	if e, ok := failure(context.Background(), err).(*driver.Error); ok && e.Err != nil {
		return e.Err
	}
	return err
}

// verdict is the error of a question that did not pass because servers could
// not be asked.
func (v *vote) verdict(ctx context.Context) error {
	if v.passed() {
		return nil
	}
	last := errors.New("nothing in time")
	for _, b := range v.got {
		if b.err != nil {
			last = b.err
		}
	}
	if errors.Is(last, errClosed) {
		return errClosed
	}
	if _, told := errors.AsType[*driver.Error](last); !told {
		last = cause(last)
	}
	if ctx.Err() != nil {
		return gaveup.Error(ctx, driver.Unknown)
	}
	return noMajority(v.faults, v.n, last)
}
