package onstore_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/driver"
)

// memoryStore is a Store in memory, with faults.
type memoryStore struct {
	clock bool // it has one

	mu       sync.Mutex
	revision driver.Revision
	items    map[string]driver.Item
	log      []driver.Item
	grown    chan struct{}
	fault    func(op, key string) fault
	calls    map[string]int
	start    time.Time
}

// fault is what goes wrong with a request.
type fault struct {
	before error // not done
	after  error // done, and the answer is lost
	hang   bool  // nothing comes until its context ends
	stall  bool  // done, and the answer (after) comes when its context ends
}

func newStore(clock bool) *memoryStore {
	return &memoryStore{clock: clock, items: map[string]driver.Item{}, grown: make(chan struct{}), start: driver.Now(), calls: map[string]int{},
		fault: func(string, string) fault { return fault{} }}
}

var errLink = errors.New("the link is down")

// ask runs f with the fault of the day.
func (s *memoryStore) ask(ctx context.Context, op, key string, f func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[op]++
	x := s.fault(op, key)
	switch {
	case x.hang:
		s.mu.Unlock()
		<-ctx.Done()
		s.mu.Lock()
		return ctx.Err()
	case x.before != nil:
		return x.before
	case ctx.Err() != nil:
		return ctx.Err()
	}
	if err := f(); err != nil {
		return err
	}
	if x.stall {
		s.mu.Unlock()
		<-ctx.Done()
		s.mu.Lock()
	}
	return x.after
}

func (s *memoryStore) set(f func(op, key string) fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

// asked is how often op was asked for.
func (s *memoryStore) asked(op string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[op]
}

func (s *memoryStore) now() time.Duration {
	if !s.clock {
		return 0
	}
	return driver.Now().Sub(s.start) + time.Hour
}

func (s *memoryStore) Get(ctx context.Context, key string) (item driver.Item, err error) {
	err = s.ask(ctx, "get", key, func() error {
		item = s.items[key]
		item.Key, item.Now = key, s.now()
		return nil
	})
	return item, err
}

func (s *memoryStore) change(item driver.Item) uint64 {
	s.revision++
	item.Revision = s.revision
	if item.Deleted {
		delete(s.items, item.Key)
	} else {
		s.items[item.Key] = item
	}
	s.log = append(s.log, item)
	close(s.grown)
	s.grown = make(chan struct{})
	return uint64(s.revision)
}

func (s *memoryStore) Swap(ctx context.Context, key string, old driver.Revision, value []byte) (rev driver.Revision, err error) {
	err = s.ask(ctx, "swap", key, func() error {
		if s.items[key].Revision != old {
			return driver.ErrConflict
		}
		rev = driver.Revision(s.change(driver.Item{Key: key, Value: slices.Clone(value)}))
		return nil
	})
	return rev, err
}

func (s *memoryStore) Delete(ctx context.Context, key string, old driver.Revision) (rev driver.Revision, err error) {
	err = s.ask(ctx, "delete", key, func() error {
		if s.items[key].Revision != old || old == 0 {
			return driver.ErrConflict
		}
		rev = driver.Revision(s.change(driver.Item{Key: key, Deleted: true}))
		return nil
	})
	return rev, err
}

func (s *memoryStore) List(ctx context.Context, prefix string) (items []driver.Item, err error) {
	err = s.ask(ctx, "list", prefix, func() error {
		for key, item := range s.items {
			if strings.HasPrefix(key, prefix) {
				item.Now = s.now()
				items = append(items, item)
			}
		}
		return nil
	})
	return items, err
}

func (s *memoryStore) Changed(ctx context.Context, key string) iter.Seq2[driver.Item, error] {
	return func(yield func(driver.Item, error) bool) {
		s.mu.Lock()
		at, rev := len(s.log), s.revision
		s.mu.Unlock()
		if !yield(driver.Item{Revision: rev}, nil) {
			return
		}
		for {
			s.mu.Lock()
			grown := s.grown
			news := s.log[at:]
			at = len(s.log)
			s.mu.Unlock()
			for _, item := range news {
				if (key == "" || item.Key == key) && !yield(item, nil) {
					return
				}
			}
			select {
			case <-grown:
			case <-ctx.Done():
				return
			}
		}
	}
}
