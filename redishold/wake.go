package redishold

import (
	"context"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/driver"
)

// listen receives what the server tells this client: grants of what it waits
// for, and holds that were taken by force. A message that is lost is made up
// for by the looks of poll and by renewals.
func (c *client) listen() {
	c.receive(c.key+"to:"+c.id, c.hear, func() { nudge(c.wakePoller) })
}

// hear takes one message; it must not wait.
func (c *client) hear(text string) {
	verb, rest, _ := strings.Cut(text, " ")
	id, number, _ := strings.Cut(rest, " ")
	if verb == "l" {
		c.lose(id)
		return
	}
	if token, err := strconv.ParseUint(number, 10, 64); err == nil && token > 0 {
		c.served(id, driver.Token(token))
	}
}

// receive subscribes to a channel as long as the client lives; ready is called
// at the start of each subscription and must not wait.
func (c *client) receive(channel string, hear func(string), ready func()) {
	for c.life.Err() == nil {
		_ = c.rc.receive(c.life, channel, ready, hear)
		select {
		case <-time.After(c.opts.BusyWaitMin + rand.N(c.opts.BusyWaitMax)):
		case <-c.life.Done():
		}
	}
}

// poll looks from time to time what became of the claims that wait, all in one
// call, and has the server end what is past its deadline.
func (c *client) poll() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for armed := false; ; {
		if !armed && c.lookout() {
			armed = true
			timer.Reset(c.untilLook())
		}
		select {
		case <-c.life.Done():
			return
		case <-c.wakePoller:
		case <-timer.C:
			armed = false
			c.look()
		}
	}
}

// untilLook is the pause before the next look. While this client helps the server it
// is as long as the last look took, so that others have the server half of the time.
func (c *client) untilLook() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.help {
		return max(c.looked, time.Millisecond)
	}
	return c.opts.BusyWaitMin + rand.N(c.opts.BusyWaitMax-c.opts.BusyWaitMin+1)
}

// lookout reports that somebody waits or watches, or that the server needs help.
func (c *client) lookout() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waits > 0 || c.help || c.hub.watched()
}

// helps notes that the server has work left over, such as the end of a session with
// many holds, which is done by the next caller that looks.
func (c *client) helps() {
	c.mu.Lock()
	c.help = true
	c.mu.Unlock()
	nudge(c.wakePoller)
}

// maxLook is how many claims one look asks about.
const maxLook = 1000

func (c *client) look() {
	ids := c.waiting()
	ctx, cancel := context.WithTimeout(c.life, patience)
	defer cancel()
	watch := "0"
	if c.hub.watched() {
		watch = millis(watchFor)
	}
	sent := driver.Now()
	reply, err := c.call(ctx, pollScript, append([]string{watch, c.id}, ids...)...)
	c.mu.Lock()
	c.looked, c.help = driver.Now().Sub(sent), err == nil && reply[2] == "1"
	c.mu.Unlock()
	if err != nil || len(reply) != len(ids)+3 {
		return // the next look, or the sessions' deadline, tells
	}
	if reply[1] == "0" {
		c.hub.lapse()
	}
	for i, state := range reply[3:] {
		if state == "0" {
			continue
		}
		token, _ := strconv.ParseUint(state, 10, 64)
		c.served(ids[i], driver.Token(token))
	}
}

// waiting are the claims in queues, or some of them.
func (c *client) waiting() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var ids []string
	for id, k := range c.claims {
		if k.queued && len(ids) < maxLook {
			ids = append(ids, id)
		}
	}
	return ids
}
