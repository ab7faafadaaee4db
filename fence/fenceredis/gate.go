// Package fenceredis lets data in Redis refuse writers that have lost their lock: the
// check of package fence and your writes run as one script.
//
//	gate := fenceredis.Gate{Client: client}
//	_, err := gate.Run(ctx, pass, `return redis.call('SET', KEYS[1], ARGV[1])`,
//		[]string{"{accounts/7}:balance"}, []string{"100"})
//	if errors.Is(err, driver.ErrStale) {
//		// the caller's lock was lost; a newer holder has been here
//	}
//
// The rule is that of [fence.Gate], without Strict: a shared token passes if it
// is not older than the newest exclusive one; an exclusive one if it is not
// older than that and newer than the newest shared one. What the gate remembers
// of a resource is the hash "holdfast:fence:{resource}". It has no expiry, since
// a forgotten resource lets any stale token pass: keep it as long as what it
// guards, and do not let the server evict it (maxmemory-policy noeviction). In a
// Redis Cluster the keys of the script have to be in its slot: give them the
// hash tag {resource}.
//
// A server that loses its newest writes, by a failover or a crash, loses what
// the gate saw together with the data that it guarded.
package fenceredis

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/fence"
)

// check goes before every script: it takes its own key and arguments away, so
// that the script finds its own at 1.
const check = `
local fenced = table.remove(KEYS, 1)
do
  local token, shared = tonumber(table.remove(ARGV, 1)), table.remove(ARGV, 1) == '1'
  local seen = redis.call('HMGET', fenced, 'exclusive', 'shared')
  local last, read = tonumber(seen[1] or '0'), tonumber(seen[2] or '0')
  if token < last or (not shared and token <= read) then
    return redis.error_reply('FENCESTALE ' .. string.format('%.0f %.0f', last, read))
  end
  if shared and token > read then redis.call('HSET', fenced, 'shared', string.format('%.0f', token)) end
  if not shared and token > last then redis.call('HSET', fenced, 'exclusive', string.format('%.0f', token)) end
end
`

// stale is what such a refusal begins with.
const stale = "FENCESTALE"

// Gate checks tokens in Redis. It is safe for concurrent use; the client is the
// caller's and is not closed.
type Gate struct {
	Client rueidis.Client
}

// Check lets a token pass or refuses it, and does nothing else. A newer token
// can pass before the caller has written: writes to the same Redis belong into
// [Gate.Run].
func (g *Gate) Check(ctx context.Context, p fence.Pass) error {
	_, err := g.run(ctx, "fence check", p, "return 1", nil, nil)
	return err
}

// Run checks the token and runs a Lua script in one step: nobody with a newer
// token writes between the two. The script is refused as a whole with
// driver.ErrStale; its own errors are returned as they are, and the token counts
// as seen then. KEYS and ARGV are the script's own. Scripts are cached by the
// server by their text: give what varies as arguments.
func (g *Gate) Run(ctx context.Context, p fence.Pass, script string, keys, args []string) (rueidis.RedisMessage, error) {
	return g.run(ctx, "fence run", p, script, keys, args)
}

func (g *Gate) run(ctx context.Context, op string, p fence.Pass, script string, keys, args []string) (rueidis.RedisMessage, error) {
	if err := valid(op, p); err != nil {
		return rueidis.RedisMessage{}, err
	}
	mode := "0"
	if p.Mode == fence.Shared {
		mode = "1"
	}
	lua := rueidis.NewLuaScript(check + script)
	result := lua.Exec(ctx, g.Client, append([]string{Key(p.Resource)}, keys...), append([]string{strconv.FormatUint(uint64(p.Token), 10), mode}, args...))
	m, err := result.ToMessage()
	return m, refusal(op, p, err)
}

// Key is where the gate remembers a resource.
func Key(resource string) string { return "holdfast:fence:{" + resource + "}" }

// valid refuses what any gate refuses, and what is no hash tag.
func valid(op string, p fence.Pass) error {
	var refused *driver.Error
	if err := new(fence.Gate).Check(p.Resource, p.Token, p.Mode); errors.As(err, &refused) { // one that has seen nothing
		return driver.Errorf(op, p.Resource, fs.ErrInvalid, "%w", refused.Err)
	}
	if strings.ContainsAny(p.Resource, "{}") {
		return driver.Errorf(op, p.Resource, fs.ErrInvalid, "a resource here has a name without braces: they are its hash tag")
	}
	return nil
}

// refusal dresses what the server answered.
func refusal(op string, p fence.Pass, err error) error {
	if err == nil || rueidis.IsRedisNil(err) {
		return nil
	}
	re, answered := rueidis.IsRedisErr(err)
	if !answered {
		if ctxErr := contextError(err); ctxErr != nil {
			return &driver.Error{Op: op, Name: p.Resource, Kind: ctxErr}
		}
		return noAnswer(op, p, err)
	}
	var last, read uint64
	if _, scanErr := fmt.Sscanf(re.Error(), stale+" %d %d", &last, &read); scanErr == nil {
		return driver.Errorf(op, p.Resource, driver.ErrStale, "%w", &fence.Refusal{Token: p.Token, Mode: p.Mode, LastExclusive: fence.Token(last), LastShared: fence.Token(read)})
	}
	return re
}

// noAnswer is the error of a server that did not answer; a dial that failed has sent nothing.
func noAnswer(op string, p fence.Pass, err error) error {
	if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
		return driver.Errorf(op, p.Resource, driver.ErrUnavailable, "no connection to Redis: %w; see that the server runs and the address is right", err)
	}
	return &driver.Error{Op: op, Name: p.Resource, Kind: driver.ErrUnavailable, Err: fmt.Errorf("no answer from Redis: %w; nobody knows whether it heard", err)}
}

func contextError(err error) error {
	for _, e := range []error{context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, e) {
			return e
		}
	}
	return nil
}
