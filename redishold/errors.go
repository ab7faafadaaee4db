package redishold

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/gaveup"
)

// advice is what to do about answers of a server that cannot serve.
var advice = []struct{ code, text string }{
	{"READONLY", "this server is a replica: connect to the primary, or by Sentinel"},
	{"LOADING", "the server is loading its data: wait until it has"},
	{"OOM", "the server is out of memory: raise maxmemory, or free some"},
	{"MASTERDOWN", "the replica has lost its primary: connect to the primary"},
	{"MISCONF", "the server cannot save its data and refuses writes: look at its disk"},
	{"CLUSTERDOWN", "the cluster does not serve this slot: repair it"},
	{"TRYAGAIN", "the cluster is moving this slot"},
	{"NOREPLICAS", "too few replicas: see min-replicas-to-write"},
	{"BUSY", "another script runs for too long: see SCRIPT KILL"},
	{"UNKILLABLE", "another script runs for too long and cannot be ended"},
	{"MOVED", "this server is a node of a cluster: connect to the cluster"},
	{"ASK", "this server is a node of a cluster: connect to the cluster"},
	{"max number of clients", "the server has no room for a connection: raise maxclients, or close some"},
}

// forbidden are answers about the client's rights.
var forbidden = []string{"NOAUTH", "WRONGPASS", "NOPERM", "ACL failure", "The user executing the script can't", "invalid password", "without any password"}

// retryIn is when to come back to a server that could not serve.
const retryIn = 100 * time.Millisecond

// failure is the error of a call that was not answered as it should be.
func failure(ctx context.Context, err error) error {
	if text, ok := serverSays(err); ok {
		return refusedBy(text)
	}
	if ctx.Err() != nil {
		return gaveup.Error(ctx, driver.Unknown)
	}
	if d, ok := ctx.Deadline(); ok && !time.Now().Before(d) {
		// A dial bounded by the deadline can end a moment before the context.
		return &driver.Error{Kind: context.DeadlineExceeded, Outcome: driver.Unknown, Err: err}
	}
	return noAnswer(err)
}

// noAnswer is the error of a server that cannot be reached, or did not answer.
func noAnswer(err error) *driver.Error {
	e := &driver.Error{Kind: driver.ErrUnavailable, RetryAfter: retryIn}
	switch {
	case unsent(err):
		e.Outcome, e.Err = driver.NotDone, fmt.Errorf("no connection to Redis: %w; see that the server runs and the address is right", err)
	case errors.Is(err, rueidis.ErrClosing):
		e.Err = errors.New("the client is closed or cannot connect; see that the server runs and the address is right")
	default:
		e.Err = fmt.Errorf("no answer from Redis: %w; nobody knows whether it heard", err)
	}
	return e
}

// unsent reports that there was no connection to send a command by: nothing that was sent before is sent again, so the
// server has not heard it.
func unsent(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// serverSays is the text of an error that the server answered with.
func serverSays(err error) (text string, ok bool) {
	if err == nil {
		return "", false
	}
	if re, ok := rueidis.IsRedisErr(err); ok {
		return re.Error(), true
	}
	var re interface {
		error
		RedisError()
	}
	if errors.As(err, &re) {
		return re.Error(), true
	}
	return "", false
}

// refusedBy is the error of a server that answered with one. One that cannot serve
// refuses a script at its first write, so nothing has changed; whatever else a command
// within a script is refused for, others may have run before it. So may all have if the
// words are unknown: a proxy that lost the answer has words of its own.
func refusedBy(text string) *driver.Error {
	switch advised := adviceFor(text); {
	case isForbidden(text) && inScript(text):
		return &driver.Error{Kind: fs.ErrPermission, Err: fmt.Errorf("a script needs a right that the user does not have, to a command, key or channel "+
			"(a new user has no channels: ACL SETUSER with &), and may have done a part before; Redis says: %s", text)}
	case isForbidden(text):
		return driver.Errorf("", "", fs.ErrPermission, "Redis refuses the user or password, or has not given the user the right: %s", code(text))
	case advised != nil:
		return advised
	case inScript(text):
		return &driver.Error{Err: fmt.Errorf("a script failed, and may have done a part before; Redis says: %s", text)}
	}
	return &driver.Error{Err: fmt.Errorf("an answer that Redis, or a proxy before it, gave in unknown words: %s; nobody knows whether it was done", text)}
}

// adviceFor is the error of a server that cannot serve; nil: the text does not say so.
func adviceFor(text string) *driver.Error {
	for _, a := range advice {
		if says(text, a.code) {
			e := driver.Errorf("", "", driver.ErrUnavailable, "%s; Redis says %s", a.text, a.code)
			e.RetryAfter = retryIn
			return e
		}
	}
	return nil
}

func isForbidden(text string) bool {
	return slices.ContainsFunc(forbidden, func(f string) bool { return strings.Contains(text, f) })
}

// inScript: not the request was refused, but a command within its script.
func inScript(text string) bool {
	return strings.Contains(text, "script: ") || strings.Contains(text, "user_script")
}

// untouched reports that the server has certainly not done what a script was to do: it
// was not sent, the server cannot serve, or the user may not ask. A right that only a command within the script
// lacks may be missing after others have run.
func untouched(err error) bool {
	text, ok := serverSays(err)
	switch {
	case !ok:
		return unsent(err)
	case isForbidden(text):
		return !inScript(text)
	}
	return adviceFor(text) != nil
}

// pressing makes a server's refusal an error that the library repeats a release for.
// Whatever it is refused for, a right that is missing included, may pass, and a hold
// that is not given back stays as long as the program lives.
func pressing(ctx context.Context, err error) error {
	text, refused := serverSays(err)
	if !refused {
		return failure(ctx, err)
	}
	e := refusedBy(text)
	if e.Kind == error(driver.ErrUnavailable) {
		return e
	}
	return &driver.Error{Kind: driver.ErrUnavailable, Outcome: e.Outcome, RetryAfter: retryIn, Err: e}
}

// says reports that an answer has a code as a word. It is the first one, or of a
// script's command that was refused, which older servers tell in the middle.
func says(text, code string) bool {
	text = " " + text + " "
	return strings.Contains(text, " "+code+" ") || strings.Contains(text, "-"+code+" ")
}

// code is the first word of an answer: what follows may quote the request.
func code(text string) string {
	word, _, _ := strings.Cut(text, " ")
	return word
}

// unreachable is the error of Open.
func unreachable(op, name string, err error) error {
	if errors.Is(err, errURL) {
		return driver.Errorf(op, name, fs.ErrInvalid, "%v", err)
	}
	if text, ok := serverSays(err); ok {
		return named(op, name, refusedBy(text))
	}
	e := driver.Errorf(op, name, driver.ErrUnavailable, "no connection: %v; see that the server runs and the address is right", err)
	e.RetryAfter = retryIn
	return e
}

// named gives an error its operation and name.
func named(op, name string, err error) error {
	if e, ok := errors.AsType[*driver.Error](err); ok {
		n := *e
		n.Op, n.Name = op, name
		return &n
	}
	return err
}

// errClosed answers calls on a closed client.
var errClosed = closedWith(driver.NotDone)

// closedWith is the error of a call that Close has ended.
func closedWith(o driver.Outcome) error { return &driver.Error{Kind: driver.ErrClosed, Outcome: o} }

var (
	errForced = &driver.Error{Kind: driver.ErrLost, Outcome: driver.Done, Err: errors.New("it was taken by force: somebody else decided its end")}
	errEnded  = &driver.Error{Kind: driver.ErrLost, Outcome: driver.NotDone, Err: errors.New("it had ended before")}
	// errNoSession is what a session ends with that the server does not know.
	errNoSession = &driver.Error{Kind: driver.ErrLost, Err: errors.New("the server does not know the session any more: it expired there, or the server lost its data")}
)

// refusal is the error of a script's answer; nil: it is none.
func refusal(name string, reply []string) error {
	switch reply[0] {
	case "ok", "queued", "next":
		return nil
	case "held":
		return heldBy(name, reply)
	case "kind":
		return driver.Errorf("", name, driver.ErrConflict, "it is a %s: use another name", kindOf(reply[1]))
	case "sign":
		return driver.Errorf("", name, driver.ErrConflict, "the counter has the other sign: use it as it was made, or delete it")
	case "limit":
		return driver.Errorf("", name, driver.ErrConflict, "it has the limit %s: give 0 for the one it has", reply[1])
	case "heavy":
		return driver.Errorf("", name, fs.ErrInvalid, "the weight is above the limit %s: it could never be granted", reply[1])
	case "noexist":
		return driver.Errorf("", name, fs.ErrNotExist, "there is none: give a limit or count to make it, and a token that holds")
	case "nosession":
		return driver.Errorf("", reply[1], driver.ErrLost, "the session of the key has ended: open a new one")
	case "exhausted":
		return driver.Errorf("", name, driver.ErrExhausted, "the sequence is at its end")
	case "lost", "gone":
		return errEnded
	}
	return driver.Errorf("", name, nil, "the server's script answers %q, which this version does not know", reply[0])
}

func kindOf(number string) driver.ResourceKind {
	k, _ := strconv.Atoi(number)
	return driver.ResourceKind(k)
}
