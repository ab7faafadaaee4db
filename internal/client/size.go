package client

import (
	"io/fs"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/core"
)

// fits refuses a command that no machine takes, before it has a number: sent, it
// would be dropped and sent again for ever, and everything behind it with it. The
// machine's own decoder decides, but for commands that it takes for certain.
func fits(c *core.Command) error {
	if plain(c) && likely(c) < core.MaxCommand {
		return nil
	}
	b := core.AppendFrame(nil, &core.Frame{Commands: []core.Command{*c}})
	if len(b) > core.MaxCommand {
		return driver.Errorf("", c.Name, fs.ErrInvalid, "the request has %d bytes: at most %d are allowed; split it", len(b), core.MaxCommand)
	}
	if err := core.DecodeNew(b, &core.Frame{}); err != nil {
		return driver.Errorf("", c.Name, fs.ErrInvalid, "the request makes no sense: %w", err)
	}
	return nil
}

// plain: the command has one part at most, and no number in it stands for something
// that there is not.
func plain(c *core.Command) bool {
	return len(c.Wants)+len(c.Then) <= 1 && len(c.If)+len(c.Else) == 0 &&
		c.Kind <= core.Limiter && c.Count <= core.CountAddAll && c.Policy <= core.Never &&
		(c.Ask == nil || c.Ask.Op <= core.LimitSetRate) &&
		(len(c.Wants) == 0 || c.Wants[0].Kind <= core.Sequence && c.Wants[0].Mode <= core.Shared) &&
		(len(c.Then) == 0 || c.Then[0].Kind <= core.KeyDelete && c.Then[0].Sort == core.ByKey)
}

// beside is more than what is encoded beside the names and values of a part.
const beside = 96

// likely is at least as many bytes as the command has, at the price of no encoding.
func likely(c *core.Command) int {
	n := 2*beside + len(c.Name) + len(c.Owner) + len(c.Meta) + len(c.Value)
	if c.Ask != nil {
		n += 2*beside + len(c.Ask.Key)
	}
	for i := range c.Wants {
		n += beside + len(c.Wants[i].Name)
	}
	for i := range c.If {
		n += beside + len(c.If[i].Key) + len(c.If[i].Value)
	}
	for _, ops := range [...][]core.KeyOp{c.Then, c.Else} {
		for i := range ops {
			n += beside + len(ops[i].Key) + len(ops[i].Value) + len(ops[i].After)
		}
	}
	return n
}
