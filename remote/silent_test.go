//go:build unix

package remote_test

import (
	"context"
	"iter"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/services"
)

// A program that only watches sends nothing: it has to find out by itself that the way to
// its node has gone silent, and to go on where it was over another.
func TestWatchOverASilentLink(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 1, steady)
	addr := g.cfgs[0].Founders[0].Client
	links := []*services.Link{services.Proxy(t, addr), services.Proxy(t, addr)}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	watcher, err := holdfast.Open(ctx, "holdfast://"+links[0].Addr()+","+links[1].Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Close()
	writer, err := holdfast.Open(ctx, g.url())
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	put := func(value string) holdfast.Revision {
		t.Helper()
		rev, err := writer.KV().Put(ctx, "k", []byte(value))
		if err != nil {
			t.Fatal(err)
		}
		return rev
	}
	first := put("before")
	pull, stop := iter.Pull2(watcher.Watch(ctx, "k", first))
	defer stop()
	hear := func(value string) {
		t.Helper()
		for {
			e, err, ok := pull()
			if err != nil || !ok {
				t.Fatalf("%q is not heard: %v", value, err)
			}
			if e.KV != nil && string(e.KV.Value) == value {
				return
			}
		}
	}
	hear("before")
	silence(ctx, t, links)
	put("after")
	began := time.Now()
	hear("after")
	t.Logf("the watch heard again after %s", time.Since(began).Round(time.Second))
}

// silence cuts the link that is in use, once only one is.
func silence(ctx context.Context, t *testing.T, links []*services.Link) {
	t.Helper()
	for ctx.Err() == nil {
		switch a, b := links[0].Open(), links[1].Open(); {
		case a > 0 && b == 0:
			links[0].Cut()
			return
		case b > 0 && a == 0:
			links[1].Cut()
			return
		}
		<-time.After(time.Millisecond)
	}
	t.Fatal("both links are in use")
}
