package client_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast"
)

// Calls that hang on no session are answered also by a server that wants longer sessions than theirs
// is: nobody can choose its TTL. What is refused for another reason is told.
func TestServerWithLongSessions(t *testing.T) {
	for _, least := range []time.Duration{time.Second, time.Minute, 24 * time.Hour, 25 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			f := openFar(t, 1)
			f.minTTL = least
			f.mend()
			counter := f.s.Counter("c")
			buffered := counter.Buffered(100, time.Hour)
			if err := buffered.Add(1); err != nil {
				t.Fatal(err)
			}
			_, flush := buffered.Flush(t.Context())
			_, put := f.s.KV().Put(t.Context(), "k", nil)
			_, add := counter.Add(t.Context(), 1)
			for what, err := range map[string]error{"flush": flush, "put": put, "add": add} {
				refused := errors.Is(err, holdfast.ErrInvalid) && holdfast.NotDone(err)
				if least <= 24*time.Hour && err != nil || least > 24*time.Hour && !refused {
					t.Errorf("%s, where sessions have at least %s: %v", what, least, err)
				}
			}
			if n, err := counter.Load(t.Context()); least <= 24*time.Hour && (n != 2 || err != nil) {
				t.Errorf("counted %d, %v", n, err)
			}
		})
	}
}
