package limit_test

import (
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/limit"
)

// A key that begins with less than its burst fills from its first use on, be it refused; until then every look tells the
// same, however late.
func TestInitial_FillsFromTheFirstUse(t *testing.T) {
	const wait = 300 * time.Millisecond
	r, s := limit.Rate{Count: 10, Per: time.Second, Burst: 10, Initial: 2}, limit.State{}
	for _, now := range []int64{0, int64(wait), int64(time.Hour)} {
		if d := limit.Peek(r, s, now, 5); d.Allowed || d.RetryAfter != wait {
			t.Errorf("a look at %s: %+v", time.Duration(now), d)
		}
	}
	s, d := limit.Take(r, s, int64(time.Hour), 5)
	if d.Allowed || d.RetryAfter != wait {
		t.Errorf("the first use: %+v", d)
	}
	if d := limit.Peek(r, s, int64(time.Hour+wait), 5); !d.Allowed {
		t.Errorf("%s after the first use: %+v", wait, d)
	}
}
