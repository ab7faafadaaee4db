package remote_test

import (
	"context"
	"testing"
	"time"
)

// A buffered counter counts once what it could not flush while all nodes were gone,
// for less than the TTL.
func TestBufferedOverAnOutage(t *testing.T) {
	g := newGroup(t, 3, steady)
	s := openAt(t, g.cfgs[0].Founders[0].Client, g.cfgs[1].Founders[1].Client, g.cfgs[2].Founders[2].Client)
	b := s.Counter("hits").Buffered(1<<40, time.Hour)
	flush := func(d time.Duration) (int64, error) {
		ctx, cancel := context.WithTimeout(t.Context(), d)
		defer cancel()
		return b.Flush(ctx)
	}
	if err := b.Add(3); err != nil {
		t.Fatal(err)
	}
	if n, err := flush(time.Minute); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	for i := range g.nodes {
		g.stop(i)
	}
	if err := b.Add(500); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if n, err := flush(200 * time.Millisecond); err == nil {
			t.Fatalf("%d was flushed to nobody", n)
		}
	}
	for i := range g.nodes {
		g.start(i)
	}
	if n, err := flush(time.Minute); n != 503 || err != nil {
		t.Errorf("3 and 500 were added, %d counted (%v)", n, err)
	}
	if n, err := s.Counter("hits").Load(t.Context()); n != 503 || err != nil {
		t.Errorf("3 and 500 were added, %d counted (%v)", n, err)
	}
}
