package client

import (
	"io/fs"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/core"
)

// fits refuses a command that no machine takes, before it has a number: sent, it
// would be dropped and sent again for ever, and everything behind it with it.
func fits(c *core.Command) error {
	if likely(c) < core.MaxCommand {
		return nil
	}
	size := len(core.AppendFrame(nil, &core.Frame{Commands: []core.Command{*c}}))
	if size <= core.MaxCommand {
		return nil
	}
	return driver.Errorf("", c.Name, fs.ErrInvalid, "the request has %d bytes: at most %d are allowed; split it", size, core.MaxCommand)
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
			n += beside + len(ops[i].Key) + len(ops[i].Value)
		}
	}
	return n
}
