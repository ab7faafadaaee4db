package pghold

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/internal/services"
)

// TestTogether: two questions about one key never go out together, since what
// the second asks depends on the first's answer; nor does anything overtake.
func TestTogether(t *testing.T) {
	about := func(keys ...int64) (queue []*job) {
		for _, k := range keys {
			j := &job{ask: &asking{key: Key{n: k}}}
			if k == 0 {
				j = &job{}
			}
			queue = append(queue, j)
		}
		return queue
	}
	for _, c := range []struct {
		queue []*job
		want  int
	}{
		{about(1), 1}, {about(0, 1), 1}, {about(1, 2, 3), 3}, {about(1, 2, 1), 2}, {about(1, 1), 1}, {about(1, 2, 0, 3), 2},
	} {
		if got := together(c.queue); got != c.want {
			t.Errorf("%d of %d jobs go out together, not %d", got, len(c.queue), c.want)
		}
	}
}

// TestMishap: what one question meets is nothing to those that go out with it.
func TestMishap(t *testing.T) {
	pg := services.SharedPostgreSQL(t)
	c := newTestClient(t, pg.URL(pg.CreateDatabase(t)), time.Minute)
	l := home(t, c)
	var sum int64
	jobs := make([]*job, 5)
	for i := range jobs {
		var n int64
		jobs[i] = &job{done: make(chan struct{}), ask: &asking{
			key: Key{n: int64(i)}, sql: "select 6 / $1::bigint", args: []any{int64(i) - 2}, to: []any{&n}, then: func() { sum += n },
		}}
	}
	j := l.start(time.Minute, func(ctx context.Context) error { l.askAll(ctx, jobs); return nil })
	<-j.done
	for i, j := range jobs {
		<-j.done
		if (code(j.err) == "22012") != (i == 2) {
			t.Errorf("question %d: %v", i, j.err)
		}
	}
	if sum != -3-6+6+3 || !l.alive() {
		t.Errorf("the other answers have the sum %d; the connection lives: %t", sum, l.alive())
	}
}

// asking is any question.
type asking struct {
	job
	key  Key
	sql  string
	args []any
	to   []any
	then func()
}

func (q *asking) about() Key                                { return q.key }
func (q *asking) form() (string, []any)                     { return q.sql, q.args }
func (q *asking) into() []any                               { return q.to }
func (q *asking) answer() error                             { q.then(); return nil }
func (q *asking) mishap(_ context.Context, err error) error { return err }
