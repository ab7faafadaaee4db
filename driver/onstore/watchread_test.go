package onstore_test

import (
	"context"
	"slices"
	"testing"

	"github.com/holdfast-io/holdfast"
)

// A watch reads of the engine what its events tell of a key before its change, and no
// more: a bucket may have very many other keys.
func TestWatchReadsWhatItNeeds(t *testing.T) {
	for name, c := range map[string]struct {
		opts []holdfast.WatchOption
		want []string
	}{
		"prefix": {nil, []string{"list l/jobs/7", "list k/jobs/7"}},
		"exact":  {[]holdfast.WatchOption{holdfast.ExactName()}, []string{"get l/jobs/7", "get k/jobs/7"}},
		"locks":  {[]holdfast.WatchOption{holdfast.Patterns{"lock:*"}}, []string{"list l/jobs/7"}},
	} {
		bubble(t, func(t *testing.T, s *memoryStore) {
			sp := open(t, s)
			var asked []string
			s.set(func(op, key string) fault {
				asked = append(asked, op+" "+key)
				return fault{}
			})
			watching, stop := context.WithCancel(t.Context())
			for range sp.Watch(watching, "jobs/7", 0, c.opts...) {
				stop()
			}
			stop()
			if !slices.Equal(asked, c.want) {
				t.Errorf("%s: a watch asks for %q, want %q", name, asked, c.want)
			}
		})
	}
}
