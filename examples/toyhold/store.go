package toyhold

import (
	"context"
	"iter"

	"github.com/holdfast-io/holdfast/driver"
)

// store is the server as a driver.Store.
type store struct{ pool }

var _ driver.Store = (*store)(nil)

// Get reads a key.
func (s *store) Get(ctx context.Context, key string) (driver.Item, error) {
	m, err := s.ask(ctx, &message{Op: "get", Key: key})
	return driver.Item{Key: key, Value: m.Value, Revision: m.Revision, Now: m.Now}, err
}

// Swap sets a key that is at the revision old.
func (s *store) Swap(ctx context.Context, key string, old driver.Revision, value []byte) (driver.Revision, error) {
	return s.change(ctx, &message{Op: "swap", Key: key, Old: old, Value: value})
}

// Delete deletes a key that is at the revision old.
func (s *store) Delete(ctx context.Context, key string, old driver.Revision) (driver.Revision, error) {
	return s.change(ctx, &message{Op: "delete", Key: key, Old: old})
}

func (s *store) change(ctx context.Context, m *message) (driver.Revision, error) {
	reply, err := s.ask(ctx, m)
	if err == nil && reply.Conflict {
		err = driver.ErrConflict
	}
	return reply.Revision, err
}

// List reads all keys that begin with prefix.
func (s *store) List(ctx context.Context, prefix string) ([]driver.Item, error) {
	reply, err := s.ask(ctx, &message{Op: "list", Key: prefix})
	var items []driver.Item
	for _, m := range reply.Items {
		items = append(items, driver.Item{Key: m.Key, Value: m.Value, Revision: m.Revision, Now: reply.Now})
	}
	return items, err
}

// Changed tells the changes of a key, or of all, over a connection of its own.
// When that ends it begins anew: the first message of the new one, which has no
// key, says that some may be missing.
func (s *store) Changed(ctx context.Context, key string) iter.Seq2[driver.Item, error] {
	return func(yield func(driver.Item, error) bool) {
		for ctx.Err() == nil {
			c, err := dial(ctx, s.addr)
			if err != nil {
				yield(driver.Item{}, err)
				return
			}
			if !c.follow(ctx, key, yield) {
				return
			}
		}
	}
}

// follow yields what a connection tells until it ends; false: the caller has
// enough.
func (c *conn) follow(ctx context.Context, key string, yield func(driver.Item, error) bool) bool {
	defer c.Close()
	defer c.until(ctx)()
	err := c.send(&message{Op: "watch", Key: key})
	for err == nil {
		var m message
		if m, err = c.receive(); err != nil {
			return true
		}
		if !yield(driver.Item{Key: m.Key, Value: m.Value, Revision: m.Revision, Deleted: m.Deleted}, nil) {
			return false
		}
	}
	return true
}
