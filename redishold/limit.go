package redishold

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/limits"
	"github.com/holdfast-io/holdfast/limit"
)

// A limiter's rate is a key of its own (L:), with an epoch before it; what each of its
// keys used is another (U:), which ends by itself when it is as if it had never been
// used; with an Initial it never is, and is listed with its epoch (I:) until that is over. A
// bucket is taken from by the script alone. For all else the client decides
// by the server's time and swaps what was used, if nobody has changed it meanwhile.

// Limit asks a limiter.
func (c *client) Limit(ctx context.Context, r *driver.LimitRequest) (driver.LimitReply, error) {
	if err := c.begin(ctx); err != nil {
		return driver.LimitReply{}, err
	}
	if r.Op == driver.LimitSetRate {
		set := limits.Fresh(r)
		reply, err := c.call(ctx, limitSetScript, "rate", r.Name, set.Text)
		if err == nil {
			c.rates.Note(r.Name, set)
			c.leftOver(reply)
		}
		return driver.LimitReply{Rate: r.Rate}, err
	}
	k, reply, err := c.limiter(ctx, r)
	switch {
	case err != nil:
		return driver.LimitReply{}, err
	case r.Op == driver.LimitReset:
		return driver.LimitReply{Rate: k.Rate}, c.reset(ctx, k, r, reply)
	case limits.Takes(k.Rate, r):
		return taken(k, r, reply)
	}
	return c.swapped(ctx, k, r, reply)
}

// leftOver has what was used in an epoch that is over removed, if one script could not.
func (c *client) leftOver(reply []string) {
	if len(reply) > 1 && reply[1] == "1" {
		c.start()
		c.helps()
	}
}

// limiter runs the script for r until client and server agree on the rate. A rate that
// has to be made is in an epoch of its own, so that nothing of a limiter that was
// deleted counts for it.
func (c *client) limiter(ctx context.Context, r *driver.LimitRequest) (limits.Known, []string, error) {
	k, fresh := c.rates.Guess(r)
	for {
		reply, err := c.askLimiter(ctx, limitArgs(k, fresh.Make(r), r))
		switch {
		case err != nil:
			return k, nil, err
		case reply[0] == "rate" && limits.Looks(reply[1], r):
			return limits.Fresh(r), reply, nil
		case reply[0] == "rate":
			if k, fresh, err = limits.Agreed(reply[1], r); err != nil {
				return k, nil, err
			}
			continue
		case reply[0] == "made":
			k = fresh
		}
		c.rates.Note(r.Name, k)
		return k, reply, nil
	}
}

// askLimiter runs the script, together with what others of the program ask just now.
func (c *client) askLimiter(ctx context.Context, args []string) ([]string, error) {
	_, reply, err := c.rc.quick(ctx, limitScript, c.keys, args)
	if err != nil {
		return nil, failure(ctx, err)
	}
	return reply, nil
}

// limitArgs are those of the script: to take from a bucket, or to read. What is
// seldom asked for stands at the end, and is left out if it is nothing.
func limitArgs(k limits.Known, fresh string, r *driver.LimitRequest) []string {
	if !limits.Takes(k.Rate, r) {
		return []string{"read", r.Name, r.Key, k.Text, fresh}
	}
	args := append(make([]string, 0, 20), "take", r.Name, r.Key, k.Text, fresh, strconv.FormatInt(k.Rate.Count, 10), bit(r.Cost > 0))
	fill := func(n int64) {
		ns, part := k.Rate.Fill(n)
		args = append(args, seconds(ns), nanoseconds(ns), strconv.FormatInt(part, 10))
	}
	fill(r.Cost)
	fill(k.Rate.Limit())
	lacks := limits.Lacks(k.Rate)
	if lacks == 0 && r.Wait <= 0 && r.Ahead <= 0 {
		return args
	}
	fill(lacks)
	for _, d := range []time.Duration{max(r.Wait, 0), max(r.Ahead, 0)} {
		args = append(args, seconds(int64(d)), nanoseconds(int64(d)))
	}
	return args
}

const second = int64(time.Second)

func seconds(ns int64) string     { return strconv.FormatInt(ns/second, 10) }
func nanoseconds(ns int64) string { return strconv.FormatInt(ns%second, 10) }

// usageFound is what the script has found: the state of the key, its text, and the time.
type usageFound struct {
	text  string
	state limit.State
	now   int64
}

func readUsage(reply []string) (u usageFound, err error) {
	in := reader{rest: reply[1:]}
	u.text = in.text()
	u.now = in.int()*second + in.int()*1000
	if in.err != nil || u.text == "" {
		return u, in.err
	}
	_, rest, _ := strings.Cut(u.text, " ")
	if rest != "" && rest[0] == '{' {
		return u, json.Unmarshal([]byte(rest), &u.state)
	}
	f := reader{rest: strings.Split(rest, " ")}
	u.state = limit.State{At: f.int()*second + f.int(), Part: f.int(), Given: f.int()*second + f.int(), Leased: f.int()*second + f.int(), Known: true}
	return u, f.err
}

// writeUsage is a state as the script reads it.
func writeUsage(k limits.Known, s limit.State) string {
	epoch := k.Epoch()
	if !limits.Bucket(k.Rate) {
		text, _ := json.Marshal(s) // numbers
		return epoch + " " + string(text)
	}
	return strings.Join([]string{epoch, seconds(s.At), nanoseconds(s.At), strconv.FormatInt(s.Part, 10),
		seconds(s.Given), nanoseconds(s.Given), seconds(s.Leased), nanoseconds(s.Leased)}, " ")
}

var errDisagree = errors.New("the server's script and this program decide differently: another version wrote it")

// taken is what the script has decided, spelled out.
func taken(k limits.Known, r *driver.LimitRequest, reply []string) (driver.LimitReply, error) {
	u, err := readUsage(reply)
	if err != nil {
		return driver.LimitReply{}, err
	}
	k.Rate.Name = r.Rate.Name
	_, answer, _ := limits.Decide(k.Rate, k.Number(), u.state, u.now, r)
	if len(reply) < 5 || answer.Decision.Allowed != (reply[4] == "1") {
		return answer, errDisagree
	}
	return answer, nil
}

// swapped decides by what was read, and again until nobody has changed it meanwhile.
func (c *client) swapped(ctx context.Context, k limits.Known, r *driver.LimitRequest, reply []string) (driver.LimitReply, error) {
	rate := k.Rate
	rate.Name = r.Rate.Name
	for {
		u, err := readUsage(reply)
		if err != nil {
			return driver.LimitReply{}, err
		}
		s, answer, keep := limits.ByOneClock(rate, k.Number(), u.state, u.now, r)
		if !keep {
			return answer, nil
		}
		back := bit(r.Op == driver.LimitSettle || r.Op == driver.LimitReturn)
		reply, err = c.call(ctx, limitScript, "swap", r.Name, r.Key, k.Text, "", u.text, writeUsage(k, s), lasts(rate, s, u.now), back)
		switch {
		case err != nil:
			return driver.LimitReply{}, err
		case reply[0] != "again": // "rate": it was changed, and this came before
			return answer, nil
		}
	}
}

// reset makes a key as if it had never been used, and tells watches.
func (c *client) reset(ctx context.Context, k limits.Known, r *driver.LimitRequest, reply []string) error {
	for {
		u, err := readUsage(reply)
		if err != nil {
			return err
		}
		text := u.text
		s, _, keep := limits.ByOneClock(k.Rate, k.Number(), u.state, u.now, r)
		if keep {
			text = writeUsage(k, s)
		}
		done, err := c.call(ctx, limitSetScript, "reset", r.Name, r.Key, k.Text, u.text, text, lasts(k.Rate, s, u.now))
		if err != nil || done[0] != "again" {
			return err
		}
		if k, reply, err = c.limiter(ctx, r); err != nil {
			return err
		}
	}
}

// lasts is how long a state counts, in milliseconds; "0": for good.
func lasts(rate limit.Rate, s limit.State, now int64) string {
	until, ends := limits.Until(rate, s, now)
	if !ends {
		return "0"
	}
	return strconv.FormatInt((until-now)/int64(time.Millisecond)+2, 10)
}
