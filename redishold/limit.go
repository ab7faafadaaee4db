package redishold

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
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
	k, a, err := c.limiter(ctx, r)
	switch {
	case err != nil:
		return driver.LimitReply{}, err
	case r.Op == driver.LimitReset:
		return driver.LimitReply{Rate: k.Rate}, c.reset(ctx, k, r, a)
	case takes(k, r):
		return taken(k, r, a)
	}
	return c.swapped(ctx, k, r, a)
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
func (c *client) limiter(ctx context.Context, r *driver.LimitRequest) (limits.Known, limitAnswer, error) {
	k, fresh := c.rates.Guess(r)
	for {
		args := []string{k.Text, limitWhat(k, r)}
		if text := fresh.Make(r); text != "" {
			args = append(args, text)
		}
		a, err := c.askLimiter(ctx, k, r, args)
		switch {
		case err != nil:
			return k, a, err
		case a.word == "rate" && limits.Looks(a.found, r):
			return limits.Fresh(r), a, nil
		case a.word == "rate":
			if k, fresh, err = limits.Agreed(a.found, r); err != nil {
				return k, a, err
			}
			continue
		case len(args) > 2:
			k = fresh
		}
		c.rates.Note(r.Name, k)
		return k, a, nil
	}
}

// limitAnswer is that of the script: a word for what it is, what was found, and the time.
type limitAnswer struct {
	word, found string
	now         int64
}

// askLimiter runs the script, together with what others of the program ask just now.
func (c *client) askLimiter(ctx context.Context, k limits.Known, r *driver.LimitRequest, args []string) (limitAnswer, error) {
	keys := []string{c.key + "L:" + r.Name, c.key + "U:" + r.Name + "\x00" + r.Key, c.key}
	if takes(k, r) && limits.Lacks(k.Rate) == 0 {
		keys = keys[:2]
	}
	_, reply, err := c.rc.quick(ctx, limitScript, keys, args)
	if err != nil {
		return limitAnswer{}, failure(ctx, err)
	}
	var at [2]int64 // seconds and microseconds
	word, rest, _ := strings.Cut(reply[0], " ")
	found, err := cutNumbers(rest, at[:])
	return limitAnswer{word, found, at[0]*second + at[1]*1000}, err
}

// cutNumbers takes numbers from the front of a text.
func cutNumbers(text string, to []int64) (rest string, err error) {
	for i := range to {
		var word string
		word, text, _ = strings.Cut(text, " ")
		if to[i], err = strconv.ParseInt(word, 10, 64); err != nil {
			return text, fmt.Errorf("the server's answer has %q where a number belongs", word)
		}
	}
	return text, nil
}

// limitWhat is what the script is to do: to take from a bucket, or to read. What is
// seldom asked for stands at the end, and is left out if it is nothing.
func limitWhat(k limits.Known, r *driver.LimitRequest) string {
	if !takes(k, r) {
		return "read"
	}
	lacks, wait, ahead := limits.Lacks(k.Rate), max(r.Wait, 0), max(r.Ahead, 0)
	p := packed(make([]byte, 0, 14*8)).number(k.Rate.Count).fill(k.Rate, r.Cost).fill(k.Rate, k.Rate.Limit())
	if lacks != 0 || wait > 0 || ahead > 0 {
		p = p.fill(k.Rate, lacks).time(int64(wait)).time(int64(ahead))
	}
	return string(p)
}

// takes reports that the script decides what r takes.
func takes(k limits.Known, r *driver.LimitRequest) bool { return r.Cost > 0 && limits.Takes(k.Rate, r) }

// packed are numbers as struct.unpack reads them in a script: exact up to 2^53.
type packed []byte

func (p packed) number(n int64) packed {
	return binary.BigEndian.AppendUint64(p, math.Float64bits(float64(n)))
}

func (p packed) time(ns int64) packed { return p.number(ns / second).number(ns % second) }

// fill is the time that n of a bucket take to refill, and the part of a nanosecond.
func (p packed) fill(rate limit.Rate, n int64) packed {
	ns, part := rate.Fill(n)
	return p.time(ns).number(part)
}

const second = int64(time.Second)

func seconds(ns int64) string     { return strconv.FormatInt(ns/second, 10) }
func nanoseconds(ns int64) string { return strconv.FormatInt(ns%second, 10) }

// state is what the key has used.
func (a limitAnswer) state() (s limit.State, err error) {
	if a.found == "" {
		return s, nil
	}
	_, rest, _ := strings.Cut(a.found, " ")
	if rest != "" && rest[0] == '{' {
		return s, json.Unmarshal([]byte(rest), &s)
	}
	var n [7]int64
	_, err = cutNumbers(rest, n[:])
	return limit.State{At: n[0]*second + n[1], Part: n[2], Given: n[3]*second + n[4], Leased: n[5]*second + n[6], Known: true}, err
}

// writeUsage is a state as the script reads it.
func writeUsage(k limits.Known, s limit.State) string {
	epoch := k.Epoch()
	if !limits.Bucket(k.Rate) {
		text, _ := json.Marshal(s) // numbers
		return epoch + " " + string(text)
	}
	words := []string{epoch, seconds(s.At), nanoseconds(s.At), strconv.FormatInt(s.Part, 10),
		seconds(s.Given), nanoseconds(s.Given), seconds(s.Leased), nanoseconds(s.Leased)}
	if s.Given == 0 && s.Leased == 0 {
		words = append(words, strconv.FormatInt(stays, 10))
	}
	return strings.Join(words, " ")
}

// stays is how many seconds what was used of a bucket outlasts the second in which it is full: the
// script, which counts on it, need not tell anew when it ends while that second is the same.
const stays = 2

var errDisagree = errors.New("the server's script and this program decide differently: another version wrote it")

// taken is what the script has decided, spelled out.
func taken(k limits.Known, r *driver.LimitRequest, a limitAnswer) (driver.LimitReply, error) {
	s, err := a.state()
	if err != nil {
		return driver.LimitReply{}, err
	}
	k.Rate.Name = r.Rate.Name
	_, answer, _ := limits.Decide(k.Rate, k.Number(), s, a.now, r)
	if answer.Decision.Allowed != (a.word == "yes") {
		return answer, errDisagree
	}
	return answer, nil
}

// swapped decides by what was read, and again until nobody has changed it meanwhile.
func (c *client) swapped(ctx context.Context, k limits.Known, r *driver.LimitRequest, a limitAnswer) (driver.LimitReply, error) {
	rate := k.Rate
	rate.Name = r.Rate.Name
	for {
		old, err := a.state()
		if err != nil {
			return driver.LimitReply{}, err
		}
		s, answer, keep := limits.ByOneClock(rate, k.Number(), old, a.now, r)
		if !keep {
			return answer, nil
		}
		back := bit(r.Op == driver.LimitSettle || r.Op == driver.LimitReturn)
		a, err = c.askLimiter(ctx, k, r, []string{k.Text, "swap", "", a.found, writeUsage(k, s), lasts(rate, s, a.now), back})
		switch {
		case err != nil:
			return driver.LimitReply{}, err
		case a.word != "again": // "rate": it was changed, and this came before
			return answer, nil
		}
	}
}

// reset makes a key as if it had never been used, and tells watches.
func (c *client) reset(ctx context.Context, k limits.Known, r *driver.LimitRequest, a limitAnswer) error {
	for {
		old, err := a.state()
		if err != nil {
			return err
		}
		text := a.found
		s, _, keep := limits.ByOneClock(k.Rate, k.Number(), old, a.now, r)
		if keep {
			text = writeUsage(k, s)
		}
		done, err := c.call(ctx, limitSetScript, "reset", r.Name, r.Key, k.Text, a.found, text, lasts(k.Rate, s, a.now))
		if err != nil || done[0] != "again" {
			return err
		}
		if k, a, err = c.limiter(ctx, r); err != nil {
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
	if limits.Bucket(rate) {
		until = (until/second + stays) * second
	}
	return strconv.FormatInt((until-now)/int64(time.Millisecond)+2, 10)
}
