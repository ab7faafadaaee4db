package redishold

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/holdfast-io/holdfast/driver"
)

// version is that of what this program keeps on a server. A program that knows
// less refuses it; one that knows more raises it when it opens it.
//
//	1  as it was before there was the key version
//	2  what sessions that have ended leave is cleared away in pages
const version = 2

// checkServer looks at the server before the first use. Only an answer is a reason to
// refuse it: a server that cannot be asked now is asked again with the next call.
func (c *client) checkServer(ctx context.Context) error {
	if c.admitted.Load() {
		return nil
	}
	reply, err := c.rc.run(ctx, admitScript, c.keys, []string{strconv.Itoa(version)})
	if err != nil || len(reply) != 3 {
		return nil
	}
	if err := fitVersion(reply[1]); err != nil {
		return err
	}
	if err := fitPolicy(reply[2], "allkeys-"); err != nil {
		return err
	}
	c.admitted.Store(true)
	return nil
}

// fitVersion refuses what a newer program has written.
func fitVersion(text string) error {
	if is, err := strconv.Atoi(text); err != nil || is <= version {
		return nil
	}
	return driver.Errorf("", "", errors.ErrUnsupported, "what is kept under this prefix is of version %s, and this program knows up to %d: update it, or use another holdfast_prefix; nothing was changed", text, version)
}

// fitPolicy refuses a server that evicts keys as these are; "" is not known.
func fitPolicy(policy string, evicts ...string) error {
	for _, prefix := range evicts {
		if strings.HasPrefix(policy, prefix) {
			return driver.Errorf("", "", errors.ErrUnsupported, "the server's maxmemory-policy is %s: it forgets locks when its memory is full, and two would have them; set maxmemory-policy noeviction", policy)
		}
	}
	return nil
}
