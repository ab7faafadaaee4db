package redishold

import (
	"context"
	"crypto/sha1"
	_ "embed" // the scripts
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/redis/rueidis"
)

// script is a Lua script that the server runs as one step.
type script struct{ text, sha string }

func newScript(parts ...string) *script {
	text := strings.Join(parts, "\n")
	sum := sha1.Sum([]byte(text))
	return &script{text, hex.EncodeToString(sum[:])}
}

var (
	//go:embed lua/prelude.lua
	prelude string
	//go:embed lua/once.lua
	onceLua string
	//go:embed lua/quick_acquire.lua
	quickAcquireLua string
	//go:embed lua/quick_release.lua
	quickReleaseLua string
	//go:embed lua/acquire.lua
	acquireLua string
	//go:embed lua/release.lua
	releaseLua string
	//go:embed lua/force.lua
	forceLua string
	//go:embed lua/open.lua
	openLua string
	//go:embed lua/admit.lua
	admitLua string
	//go:embed lua/sweep.lua
	sweepLua string
	//go:embed lua/renew.lua
	renewLua string
	//go:embed lua/end.lua
	endLua string
	//go:embed lua/poll.lua
	pollLua string
	//go:embed lua/watch.lua
	watchLua string
	//go:embed lua/session.lua
	sessionLua string
	//go:embed lua/inspect.lua
	inspectLua string
	//go:embed lua/unfold.lua
	unfoldLua string
	//go:embed lua/change.lua
	changeLua string
	//go:embed lua/count.lua
	countLua string
	//go:embed lua/limit.lua
	limitLua string
	//go:embed lua/limit_set.lua
	limitSetLua string
	//go:embed lua/tellcount.lua
	tellCountLua string
	//go:embed lua/reserve.lua
	reserveLua string
	//go:embed lua/countdown.lua
	countdownLua string
	//go:embed lua/delete.lua
	deleteLua string
	//go:embed lua/txn.lua
	txnLua string
	//go:embed lua/redlock_take.lua
	takeLua string
	//go:embed lua/redlock_token.lua
	tokenLua string
	//go:embed lua/redlock_extend.lua
	extendLua string
	//go:embed lua/redlock_free.lua
	freeLua string
	//go:embed lua/redlock_look.lua
	lookLua string
)

var (
	acquireScript   = newScript(quickAcquireLua, prelude, acquireLua)
	releaseScript   = newScript(quickReleaseLua, prelude, releaseLua)
	forceScript     = newScript(prelude, forceLua)
	openScript      = newScript(prelude, openLua)
	admitScript     = newScript(prelude, admitLua)
	sweepScript     = newScript(prelude, sweepLua)
	renewScript     = newScript(prelude, renewLua)
	endScript       = newScript(prelude, endLua)
	pollScript      = newScript(prelude, pollLua)
	watchScript     = newScript(prelude, watchLua)
	sessionScript   = newScript(prelude, sessionLua)
	inspectScript   = newScript(prelude, inspectLua)
	unfoldScript    = newScript(prelude, unfoldLua)
	changeScript    = newScript(prelude, changeLua)
	deleteScript    = newScript(prelude, deleteLua)
	tellCountScript = newScript(prelude, tellCountLua)
	limitScript     = newScript(limitLua)
	limitSetScript  = newScript(prelude, limitSetLua)
	countScript     = newScript(prelude, onceLua, countLua)
	reserveScript   = newScript(prelude, onceLua, reserveLua)
	countdownScript = newScript(prelude, onceLua, countdownLua)
	txnScript       = newScript(prelude, onceLua, txnLua)

	takeScript   = newScript(takeLua)
	tokenScript  = newScript(tokenLua)
	extendScript = newScript(extendLua)
	freeScript   = newScript(freeLua)
	lookScript   = newScript(lookLua)
)

// run has the server run s by its hash; a server that does not know it, being
// new or restarted, gets the text.
func (s *script) run(ctx context.Context, rc rueidis.Client, keys, args []string) ([]string, error) {
	reply, err := texts(rc.Do(ctx, s.byHash(rc, keys, args)))
	if unknown(err) {
		return texts(rc.Do(ctx, s.whole(rc, keys, args)))
	}
	return reply, err
}

// texts is an answer of a script: several texts, or one alone.
func texts(r rueidis.RedisResult) ([]string, error) {
	m, err := r.ToMessage()
	if err != nil {
		return nil, err
	}
	if m.IsString() {
		s, err := m.ToString()
		return []string{s}, err
	}
	if m.IsInt64() {
		n, err := m.ToInt64()
		return []string{strconv.FormatInt(n, 10)}, err
	}
	return m.AsStrSlice()
}

func (s *script) byHash(rc rueidis.Client, keys, args []string) rueidis.Completed {
	return rc.B().Evalsha().Sha1(s.sha).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()
}

func (s *script) whole(rc rueidis.Client, keys, args []string) rueidis.Completed {
	return rc.B().Eval().Script(s.text).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()
}

// unknown reports that the server does not have the script: it did nothing.
func unknown(err error) bool {
	text, ok := serverSays(err)
	return ok && strings.HasPrefix(text, "NOSCRIPT")
}

// task is one run of a script.
type task struct{ keys, args []string }

// runAll runs s for each task, all in one pipeline.
func (s *script) runAll(ctx context.Context, rc rueidis.Client, tasks []task) []rueidis.RedisResult {
	cmds := make(rueidis.Commands, len(tasks))
	for i, t := range tasks {
		cmds[i] = s.byHash(rc, t.keys, t.args)
	}
	results := rc.DoMulti(ctx, cmds...)
	for i := range results {
		if unknown(results[i].Error()) {
			results[i] = rc.Do(ctx, s.whole(rc, tasks[i].keys, tasks[i].args))
		}
	}
	return results
}
