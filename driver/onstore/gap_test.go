package onstore_test

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

// scripted is a store that tells of its changes what the test sends.
type scripted struct {
	*memoryStore
	feed    chan driver.Item
	listing func(prefix string) // called before each List
	lists   int
	told    []string
}

func (s *scripted) Changed(ctx context.Context, _ string) iter.Seq2[driver.Item, error] {
	return func(yield func(driver.Item, error) bool) {
		for {
			select {
			case item := <-s.feed:
				if !yield(item, nil) {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}
}

func (s *scripted) List(ctx context.Context, prefix string) ([]driver.Item, error) {
	s.lists++
	s.listing(prefix)
	return s.memoryStore.List(ctx, prefix)
}

// script begins a watch of such a store.
func script(t *testing.T) *scripted {
	s := &scripted{memoryStore: newStore(true), feed: make(chan driver.Item), listing: func(string) {}}
	sp := open(t, s)
	go func() {
		for ev := range sp.Watch(t.Context(), "", 0, holdfast.WithPrevious()) {
			text := fmt.Sprintf("%s %d", ev.String(), ev.Revision)
			if ev.Prev != nil {
				text += fmt.Sprintf(" after %d", ev.Prev.Modified)
			}
			s.told = append(s.told, text)
		}
	}()
	s.gap(0)
	return s
}

// gap tells that changes up to a revision may be missing.
func (s *scripted) gap(upTo driver.Revision) {
	s.feed <- driver.Item{Revision: upTo}
	synctest.Wait()
}

// tell tells the change of a revision.
func (s *scripted) tell(revision driver.Revision) {
	s.mu.Lock()
	item := s.log[revision-1]
	s.mu.Unlock()
	s.feed <- item
	synctest.Wait()
}

// want compares what was told since it was asked last.
func (s *scripted) want(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(s.told, want) {
		t.Errorf("told: %s; want: %s", strings.Join(s.told, ", "), strings.Join(want, ", "))
	}
	s.told = nil
}

// puts changes a key n times.
func puts(t *testing.T, sp *holdfast.Space, key string, n int) {
	t.Helper()
	for range n {
		if _, err := sp.KV().Put(t.Context(), key, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// A watch that was behind is told one resync, however many gaps are in what it was behind
// with, and everything from the revision of the resync on.
func TestManyGapsAreOneResync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := script(t)
		writer := open(t, s.memoryStore)
		s.want(t, "watch:ready 1")
		puts(t, writer, "k", 20)
		before := s.lists
		for revision := driver.Revision(2); revision <= 20; revision += 2 {
			s.gap(revision - 1)
			s.tell(revision)
		}
		if n := s.lists - before; n > 4 {
			t.Errorf("%d lists for gaps in what was read already", n)
		}
		s.want(t, "watch:resync 21")
		puts(t, writer, "k", 4)
		s.tell(21)
		s.want(t, "kv:put 21 after 20")
		s.gap(23) // it began in what was to be told
		s.tell(24)
		s.want(t, "watch:resync 25")
	})
}

// A change that is missing, and that the watch would not have told any more, can be one that
// came while the watch read: what follows is told from what that change made of the key.
func TestGapInWhatCameWhileTheWatchRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := script(t)
		writer := open(t, s.memoryStore)
		puts(t, writer, "k", 1)
		var h *holdfast.Hold
		s.listing = func(prefix string) {
			if prefix != "k/" || h != nil {
				return
			}
			var err error
			if h, err = writer.Mutex("m").Acquire(t.Context()); err != nil { // 2: the locks were read before
				t.Error(err)
			}
			puts(t, writer, "k", 1)
		}
		s.gap(1)
		s.want(t, "watch:ready 1", "watch:resync 4")
		s.gap(2)
		s.tell(3)
		s.want(t)
		if err := h.Release(); err != nil {
			t.Fatal(err)
		}
		s.tell(4)
		s.want(t, "lock:released 4")
	})
}

// A key that ended while changes were missing is a resync: nobody knows when it ended.
func TestGapInWhichAKeyEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := script(t)
		writer := open(t, s.memoryStore)
		puts(t, writer, "a", 1)
		puts(t, writer, "b", 1)
		s.gap(0) // before what was read
		s.tell(1)
		s.tell(2)
		puts(t, writer, "b", 1)
		s.gap(1)
		s.want(t, "watch:ready 1", "kv:put 1", "kv:put 2", "watch:resync 4")
		if _, err := writer.KV().Delete(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		s.gap(2)
		s.want(t, "watch:resync 4")
	})
}
