package redishold_test

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

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

// TestLapsedValuesAreNotRead: a range passes over keys past their time without their values, which may be long.
func TestLapsedValuesAreNotRead(t *testing.T) {
	const lapsed = 600
	all := holdfast.ValueIs("k/", []byte("v"))
	all.Prefix = true
	page := func(opts ...holdfast.RangeOption) holdfast.Op { return holdfast.RangeOp("k/", opts...) }
	for name, txn := range map[string]holdfast.Txn{
		"page":      {Then: []holdfast.Op{page()}},
		"keys only": {Then: []holdfast.Op{page(holdfast.KeysOnly())}},
		"by value":  {Then: []holdfast.Op{page(holdfast.ByValue)}},
		"compare":   {If: []holdfast.Compare{all}, Then: []holdfast.Op{page(holdfast.MaxKeys(1))}},
		"delete":    {Then: []holdfast.Op{holdfast.DeleteRangeOp("k/")}},
	} {
		t.Run(name, func(t *testing.T) {
			server := services.Redis(t)
			s, rc := open(t, server.URL()), admin(t, server.URL())
			if _, err := s.KV().Put(t.Context(), "k/", []byte("v")); err != nil {
				t.Fatal(err)
			}
			do(t, rc, "EVAL", lapse, "0", fmt.Sprint(lapsed))
			reads := valuesRead(t, server.Addr(), rc, func() {
				if _, err := s.KV().Txn(t.Context(), txn); err != nil {
					t.Error(err)
				}
			})
			if reads > lapsed/3 { // some are removed by the way, which tells their values
				t.Errorf("the values of %d keys were read, of which one is there", reads)
			}
		})
	}
}

// valuesRead counts the keys of the values that scripts read while f runs.
func valuesRead(t *testing.T, addr string, rc rueidis.Client, f func()) (n int) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(conn)
	lines.Scan() // it has begun
	f()
	do(t, rc, "ECHO", "that is all")
	for lines.Scan() && !strings.Contains(lines.Text(), "that is all") {
		if strings.Contains(strings.ToUpper(lines.Text()), `"HMGET"`) && strings.Contains(lines.Text(), `"v"`) {
			n++
		}
	}
	return n
}

// TestDeadReaderLeaves: each reader ends on its own; one that died does not stay
// as long as others read.
func TestDeadReaderLeaves(t *testing.T) {
	server := services.SharedRedis(t)
	link, name := services.Proxy(t, server.Addr()), unique(t)
	dying, living := open(t, link.URL(server.URL())), open(t, server.URL())
	soLong(t, func() (*holdfast.Hold, error) {
		return dying.RWMutex(name, holdfast.TTL(time.Second)).Reader().Acquire(t.Context())
	})
	hold, err := living.RWMutex(name).Reader().Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer hold.Release()
	link.Cut()
	defer link.Heal()
	eventually(t, "the dead reader stays", func() bool {
		r, err := living.Inspect(t.Context(), name)
		return err == nil && len(r.Holders) == 1
	})
	if err := hold.Err(); err != nil {
		t.Errorf("the living reader: %v", err)
	}
}

// TestExpiredTicketIsFree: what a dead holder had of a semaphore is not counted
// as used.
func TestExpiredTicketIsFree(t *testing.T) {
	server := services.SharedRedis(t)
	link, name := services.Proxy(t, server.Addr()), unique(t)
	dying, living := open(t, link.URL(server.URL())), open(t, server.URL())
	soLong(t, func() (*holdfast.Hold, error) {
		return dying.Semaphore(name, 3, holdfast.TTL(time.Second)).Acquire(t.Context(), 2)
	})
	link.Cut()
	defer link.Heal()
	eventually(t, "an expired ticket is counted", func() bool {
		r, err := living.Inspect(t.Context(), name)
		return err == nil && r.Used == 0 && r.Limit == 3
	})
	h, err := living.Semaphore(name, 3).TryAcquire(t.Context(), 3)
	if err != nil {
		t.Fatal(err)
	}
	_ = h.Release()
}
