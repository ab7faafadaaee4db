package gen

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/core/coretest/twin"
)

// crowd is a number of well-behaved clients: each waits for one thing at a
// time, and those that hold something meanwhile take names in order only.
type crowd struct {
	rand    *rand.Rand
	apply   func(twin.Entry) (twin.Output, error)
	members []*member
	story   strings.Builder
}

type member struct {
	id      core.SessionID
	ordered bool
	seq     uint64
	waits   uint64          // number of the claim that it waits for; 0: none
	holds   []hold          // granted
	wanted  map[uint64]hold // by number
	upgrade uint64          // number of the claim that the wait is to replace
}

type hold struct {
	seq   uint64
	names []string
	kind  core.Kind
	mode  core.Mode
}

// Crowd lets clients take turns at random, then lets them finish. It is an
// error if they end up waiting for each other.
func Crowd(seed uint64, apply func(twin.Entry) (twin.Output, error)) error {
	c := &crowd{rand: rand.New(rand.NewPCG(seed, 0x63726f7764)), apply: apply}
	for i := range 3 + c.rand.IntN(4) {
		m := &member{ordered: c.rand.IntN(2) == 0, wanted: map[uint64]hold{}}
		m.id[0] = byte('A' + i)
		c.members = append(c.members, m)
		if err := c.send(m, core.Command{Op: core.OpOpen, TTL: 3600e9}); err != nil {
			return err
		}
	}
	for range 120 {
		if err := c.turn(c.members[c.rand.IntN(len(c.members))]); err != nil {
			return err
		}
	}
	return c.finish()
}

// turn lets one client act, unless it waits.
func (c *crowd) turn(m *member) error {
	switch {
	case m.waits != 0:
		return nil
	case len(m.holds) == 0 || m.ordered && c.rand.IntN(2) == 0:
		return c.acquire(m)
	case len(m.holds) == 1 && c.rand.IntN(4) == 0 && m.holds[0].kind == core.RWMutex && m.holds[0].mode == core.Shared && len(m.holds[0].names) == 1:
		return c.upgrade(m)
	}
	return c.release(m)
}

// finish lets every holder that can release all, until nobody holds or waits.
func (c *crowd) finish() error {
	for {
		acted, waiting := false, 0
		for _, m := range c.members {
			for m.waits == 0 && len(m.holds) > 0 {
				acted = true
				if err := c.release(m); err != nil {
					return err
				}
			}
			if m.waits != 0 {
				waiting++
			}
		}
		switch {
		case waiting == 0 && !acted:
			return nil
		case !acted:
			return fmt.Errorf("%d clients wait for each other\n%s", waiting, c.story.String())
		}
	}
}

// acquire wants one to three names, for an ordered client all after those that
// it holds.
func (c *crowd) acquire(m *member) error {
	last := ""
	for _, h := range m.holds {
		last = max(last, slices.Max(h.names))
	}
	cmd := core.Command{Op: core.OpAcquire}
	for range 1 + c.rand.IntN(3) {
		w := c.want()
		taken := slices.ContainsFunc(cmd.Wants, func(o core.Want) bool { return o.Name == w.Name })
		if w.Name > last && !taken {
			cmd.Wants = append(cmd.Wants, w)
		}
	}
	if len(cmd.Wants) == 0 {
		return nil
	}
	h := hold{kind: cmd.Wants[0].Kind, mode: cmd.Wants[0].Mode}
	for _, w := range cmd.Wants {
		h.names = append(h.names, w.Name)
	}
	return c.ask(m, cmd, h)
}

func (c *crowd) want() core.Want {
	i := c.rand.IntN(9)
	w := core.Want{Name: string(rune('a' + i)), Kind: core.Kind(1 + i%3)}
	switch w.Kind {
	case core.RWMutex:
		w.Mode = core.Mode(c.rand.IntN(2))
	case core.Semaphore:
		w.Mode, w.Limit, w.Weight = core.Shared, 3, int64(1+c.rand.IntN(3))
	}
	return w
}

func (c *crowd) upgrade(m *member) error {
	h := m.holds[0]
	m.upgrade = h.seq
	h.mode = core.Exclusive
	return c.ask(m, core.Command{Op: core.OpUpgrade, Target: m.upgrade}, h)
}

// ask sends a request and waits for it.
func (c *crowd) ask(m *member, cmd core.Command, h hold) error {
	m.seq++
	cmd.Seq, h.seq = m.seq, m.seq
	m.waits, m.wanted[m.seq] = m.seq, h
	return c.send(m, cmd)
}

func (c *crowd) release(m *member) error {
	i := c.rand.IntN(len(m.holds))
	m.seq++
	cmd := core.Command{Op: core.OpRelease, Seq: m.seq, Target: m.holds[i].seq}
	m.holds = slices.Delete(m.holds, i, i+1)
	return c.send(m, cmd)
}

// send applies one command and lets everybody hear of it.
func (c *crowd) send(m *member, cmd core.Command) error {
	out, err := c.apply(twin.Entry{Frames: []core.Frame{{Session: m.id, Mark: m.seq, Commands: []core.Command{cmd}}}})
	if err != nil {
		return err
	}
	r := out.Replies[0].Results[0]
	fmt.Fprintf(&c.story, "%s %d: op %d %v target %d: code %d token %d\n", m.id[:1], cmd.Seq, cmd.Op, cmd.Wants, cmd.Target, r.Code, r.Token)
	switch {
	case r.Code == core.CodeConflict && cmd.Op == core.OpUpgrade:
		m.waits, m.upgrade = 0, 0 // the shared hold stays
	case r.Code == core.CodeOK && m.waits == cmd.Seq && m.waits != 0:
		m.granted(m.waits)
	case r.Code != core.CodeOK && r.Code != core.CodeQueued:
		return fmt.Errorf("refused with code %d\n%s", r.Code, c.story.String())
	}
	for _, p := range out.Pushes {
		i := slices.IndexFunc(c.members, func(m *member) bool { return m.id == p.Session })
		if p.State != core.ClaimGranted || c.members[i].waits != p.Seq {
			return fmt.Errorf("push %+v was not waited for\n%s", p, c.story.String())
		}
		c.members[i].granted(p.Seq)
	}
	return nil
}

func (m *member) granted(seq uint64) {
	m.holds = slices.DeleteFunc(m.holds, func(h hold) bool { return h.seq == m.upgrade })
	m.holds = append(m.holds, m.wanted[seq])
	m.waits, m.upgrade = 0, 0
}
