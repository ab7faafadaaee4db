package redishold_test

import (
	"fmt"
	"testing"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/services"
)

// lapse makes keys that are past their time, and that nobody has removed yet.
const lapse = `for i = 1, tonumber(ARGV[1]) do
  local name = string.format('k/%06d', i)
  redis.call('HSET', '{holdfast}:k:' .. name, 'v', '', 'cr', '1', 'mo', '1', 've', '1', 's', '', 'x', '1')
  redis.call('ZADD', '{holdfast}:keys', 0, name)
  redis.call('ZADD', '{holdfast}:due', 1, 'k' .. name)
end
return 1`

// TestRangeBehindLapsedKeys: keys past their time that have not been removed yet do not keep
// a range, however short, from those behind them.
func TestRangeBehindLapsedKeys(t *testing.T) {
	for _, lapsed := range []int{100, 3_000} {
		for name, opts := range map[string][]holdfast.RangeOption{
			"all": nil, "some": {holdfast.MaxKeys(3)}, "down": {holdfast.MaxKeys(1), holdfast.Descending(), holdfast.AfterKey("k/z")},
		} {
			t.Run(fmt.Sprint(lapsed, " ", name), func(t *testing.T) {
				server := services.Redis(t)
				s, rc := open(t, server.URL()), admin(t, server.URL())
				for _, key := range []string{"k/", "k/z"} {
					if _, err := s.KV().Put(t.Context(), key, nil); err != nil {
						t.Fatal(err)
					}
				}
				do(t, rc, "EVAL", lapse, "0", fmt.Sprint(lapsed))
				var got []string
				for e, err := range s.KV().Range(t.Context(), "k/", opts...) {
					if err != nil {
						t.Fatal(err)
					}
					got = append(got, e.Key)
				}
				want := map[string]string{"all": "[k/ k/z]", "some": "[k/ k/z]", "down": "[k/]"}[name]
				if fmt.Sprint(got) != want {
					t.Errorf("got %q, not %s", got, want)
				}
			})
		}
	}
}
