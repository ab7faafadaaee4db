package redishold

import (
	"context"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/driver"
)

// maxListed is how many names, or claims of one name, one answer lists at most.
const maxListed = 1000

// Inspect lists holders and waiters.
func (c *client) Inspect(ctx context.Context, r *driver.InspectRequest) (driver.InspectReply, error) {
	listed := r.Max
	if listed <= 0 || listed > maxListed {
		listed = maxListed
	}
	// What was held the short way when the list began is found once all of it is
	// unfolded, so that only the first page has to see to it.
	after, begun := strings.CutPrefix(r.After, unfolded)
	if r.Prefix && !begun {
		if err := c.unfold(ctx, r.Name); err != nil {
			return driver.InspectReply{}, err
		}
	}
	reply, err := c.ask(ctx, r.Name, inspectScript, bit(r.Prefix), r.Name, after, strconv.Itoa(listed))
	if err != nil {
		return driver.InspectReply{}, err
	}
	in := reader{rest: reply[1:]}
	out := driver.InspectReply{Revision: in.revision(), Next: in.text()}
	for !in.empty() {
		out.Resources = append(out.Resources, in.resource())
	}
	if r.Prefix && out.Next != "" {
		out.Next = unfolded + out.Next
	}
	return out, in.err
}

// unfolded stands before the name after which a list goes on. No name begins so.
const unfolded = "\x00"

// unfold gives mutexes with a prefix that are held the short way the keys that a
// list finds, a bounded number in each call.
func (c *client) unfold(ctx context.Context, prefix string) error {
	at, cursor, todo := "0", "0", []string(nil)
	for {
		reply, err := c.ask(ctx, prefix, unfoldScript, append([]string{prefix, at, cursor}, todo...)...)
		if err != nil {
			return err
		}
		in := reader{rest: reply[1:]}
		at, cursor = in.text(), in.text()
		if todo = in.rest; in.err != nil || at == "0" && len(todo) == 0 {
			return in.err
		}
	}
}

func bit(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

func (r *reader) resource() driver.Resource {
	res := driver.Resource{Name: r.text(), Kind: driver.ResourceKind(r.int()), Limit: r.int(), Used: r.int(), Created: r.revision(),
		Holding: int(r.int()), Waiting: int(r.int())}
	skipped := int(r.int())
	res.Holders = r.claims(res.Name, res.Kind)
	res.Waiters = r.claims(res.Name, res.Kind)
	res.Modified = res.Created
	for _, h := range res.Holders {
		res.Modified = max(res.Modified, h.Modified)
	}
	for i := range res.Waiters {
		w := &res.Waiters[i]
		w.Position = skipped + i + 1
		if i > 0 {
			w.Before = res.Waiters[i-1].Session
		} else if len(res.Holders) > 0 {
			w.Before = res.Holders[0].Session
		}
	}
	res.More = len(res.Holders) < res.Holding || skipped+len(res.Waiters) < res.Waiting
	return res
}

// heldBy is ErrHeld with the claims that stand in the way.
func heldBy(name string, reply []string) error {
	r := reader{rest: reply[1:]}
	e := &driver.Error{Name: name, Kind: driver.ErrHeld, Outcome: driver.NotDone, Waiting: int(r.int())}
	e.Holders = r.claims(name, driver.ResourceKind(r.int()))
	return e
}

// Force ends the claim on a name that has a token.
func (c *client) Force(ctx context.Context, r *driver.ForceRequest) (driver.ForceReply, error) {
	if r.Token == 0 {
		return driver.ForceReply{}, driver.Errorf("", r.Name, fs.ErrInvalid, "the token 0 is nobody's: give the holder's, as Inspect tells it")
	}
	reply, err := c.ask(ctx, r.Name, forceScript, r.Name, strconv.FormatUint(uint64(r.Token), 10), bit(r.Now))
	if err != nil {
		if reply != nil && reply[0] == "noexist" {
			err = driver.Errorf("", r.Name, fs.ErrNotExist, "nobody holds it with the token %d: Inspect tells its holder", r.Token)
		}
		return driver.ForceReply{}, err
	}
	in := reader{rest: reply[1:]}
	return driver.ForceReply{Until: max(in.millis(), 0)}, in.err
}

// Delete removes an idle object.
func (c *client) Delete(ctx context.Context, kind driver.ResourceKind, name string) error {
	reply, err := c.ask(ctx, name, deleteScript, strconv.Itoa(int(kind)), name)
	if err != nil && reply != nil && reply[0] == "noexist" {
		return driver.Errorf("", name, fs.ErrNotExist, "there is no %s of this name", kind)
	}
	if err == nil {
		c.leftOver(reply)
	}
	return err
}

// CountDown takes something off a latch.
func (c *client) CountDown(ctx context.Context, r *driver.CountDownRequest) (driver.CountDownReply, error) {
	if r.Count > maxUnits {
		return driver.CountDownReply{}, driver.Errorf("", r.Name, fs.ErrInvalid, "a count above 2⁵⁰ is too great for Redis")
	}
	reply, err := c.askOnce(ctx, r.ID, r.Name, countdownScript, r.Name, strconv.FormatInt(r.Count, 10), strconv.FormatInt(min(r.By, maxUnits), 10))
	if err != nil {
		return driver.CountDownReply{}, err
	}
	in := reader{rest: reply[1:]}
	return driver.CountDownReply{Left: in.int()}, in.err
}

// remaining is the time to a deadline of a session in whole milliseconds, for
// scripts; 0: none.
func remaining(d time.Duration) string {
	if d <= 0 {
		return "0"
	}
	return millis(d)
}
