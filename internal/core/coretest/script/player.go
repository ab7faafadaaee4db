package script

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/core/coretest/twin"
)

// Engine is what a script is played on.
type Engine interface {
	Apply(twin.Entry) (twin.Output, error)
	Now() int64
	// Ask answers a line that is not a command: "table A", "inspect jobs",
	// "due", "snapshot", and "config budget=3 window=4", which begins anew.
	// False: this engine does not know it and the output of the block is not compared.
	Ask(words []string) (string, bool)
}

// Player plays blocks on an engine and remembers what was sent.
type Player struct {
	engine   Engine
	now      int64
	seqs     map[string]uint64
	attempts map[string]uint64
	sent     []core.Frame
	apart    bool // the next command begins a frame
}

// NewPlayer begins at time 0.
func NewPlayer(e Engine) *Player {
	return &Player{engine: e, seqs: map[string]uint64{}, attempts: map[string]uint64{}}
}

// Play returns what the block puts out; false: the engine cannot tell.
func (p *Player) Play(b Block) (string, bool, error) {
	if b.Input[0] == "batch" {
		out, err := p.entry(b.Input[1:])
		return out, true, err
	}
	var all strings.Builder
	knowsAll := true
	for _, line := range b.Input {
		out, known, err := p.line(line)
		if err != nil {
			return "", false, err
		}
		knowsAll = knowsAll && known
		all.WriteString(out)
	}
	return all.String(), knowsAll, nil
}

// line plays one line as an entry, or asks.
func (p *Player) line(line string) (string, bool, error) {
	words := strings.Fields(line)
	switch words[0] {
	case "config", "table", "inspect", "snapshot", "due":
		out, known := p.engine.Ask(words)
		return out, known, nil
	}
	out, err := p.entry([]string{line})
	return out, true, err
}

// entry applies the lines as one entry.
func (p *Player) entry(lines []string) (string, error) {
	var e twin.Entry
	for _, line := range lines {
		if err := p.add(&e, strings.Fields(line)); err != nil {
			return "", fmt.Errorf("%q: %w", line, err)
		}
	}
	e.Now = p.now
	p.sent = append(p.sent, e.Frames...)
	out, err := p.engine.Apply(e)
	if err != nil {
		return "", err
	}
	if err := anchored(e, out, p.engine.Now()); err != nil {
		return "", err
	}
	return Print(out), nil
}

// add puts one line into the entry.
func (p *Player) add(e *twin.Entry, words []string) error {
	switch words[0] {
	case "at":
		d, err := time.ParseDuration(words[1])
		p.now = int64(d)
		return err
	case "keep":
		return p.addRenewal(e, words[1:])
	case "retry":
		return p.addRetry(e, words[1:])
	case "frame":
		p.apart = true
		return nil
	case "forget", "freeze", "unfreeze", "raise":
		return addKind(e, words)
	}
	return p.addCommand(e, words)
}

func (p *Player) addRenewal(e *twin.Entry, words []string) error {
	a := arguments(words)
	r := core.Renewal{Session: ID(words[0]), Attempt: p.attempt(words[0])}
	r.TTL = a.duration("ttl")
	e.Renewals = append(e.Renewals, r)
	return a.err
}

// addRetry sends a frame again, as a new attempt.
func (p *Player) addRetry(e *twin.Entry, words []string) error {
	for _, f := range slices.Backward(p.sent) {
		if len(words) == 2 && (f.Session != ID(words[0]) || !has(f, words[1])) {
			continue
		}
		f.Attempt = p.attempt(Name(f.Session))
		e.Frames = append(e.Frames, f)
		return nil
	}
	return fmt.Errorf("no such frame was sent")
}

func has(f core.Frame, seq string) bool {
	return slices.ContainsFunc(f.Commands, func(c core.Command) bool { return fmt.Sprint(c.Seq) == seq })
}

// addCommand adds a command, to the last frame if that is of the same session.
func (p *Player) addCommand(e *twin.Entry, words []string) error {
	if words[0] == "open" && len(words) > 1 {
		words[0], words[1] = words[1], words[0]
	}
	if len(words) < 2 {
		return fmt.Errorf("what shall %s do?", words[0])
	}
	who, a := words[0], arguments(words[2:])
	c, err := command(words[1], a)
	if err != nil {
		return err
	}
	if c.Op != core.OpOpen && c.Op != core.OpEnd {
		c.Seq = p.seq(who, a)
	}
	mark := a.number("mark")
	if last := len(e.Frames) - 1; !p.apart && last >= 0 && e.Frames[last].Session == ID(who) {
		e.Frames[last].Commands = append(e.Frames[last].Commands, c)
	} else {
		e.Frames = append(e.Frames, core.Frame{Session: ID(who), Attempt: p.attempt(who), Mark: mark, Commands: []core.Command{c}})
	}
	p.apart = false
	return a.done()
}

// addKind makes the entry one that is not for commands.
func addKind(e *twin.Entry, words []string) error {
	e.Kind = core.EntryKind(slices.Index(entryKinds, words[0]))
	if len(words) == 1 {
		return nil
	}
	n, err := strconv.ParseUint(words[1], 10, 63)
	if e.Kind == core.EntryRaise {
		e.Revision = n
	} else {
		e.Seconds = int64(n)
	}
	return err
}

// seq is the next number of a session, or the one that the line asks for.
func (p *Player) seq(who string, a *args) uint64 {
	if _, ok := a.named["seq"]; ok {
		n := a.number("seq")
		p.seqs[who] = max(p.seqs[who], n)
		return n
	}
	p.seqs[who]++
	return p.seqs[who]
}

func (p *Player) attempt(who string) uint64 {
	p.attempts[who]++
	return p.attempts[who]
}

// anchored checks what every script takes for granted: each frame and renewal
// is answered once, in order, with its own attempt and the time of the apply.
func anchored(e twin.Entry, out twin.Output, now int64) error {
	if len(out.Replies) != len(e.Frames) || len(out.Renewed) != len(e.Renewals) {
		return fmt.Errorf("%d frames and %d renewals, but %d replies and %d renewed",
			len(e.Frames), len(e.Renewals), len(out.Replies), len(out.Renewed))
	}
	for i, r := range out.Replies {
		if r.Session != e.Frames[i].Session || r.Attempt != e.Frames[i].Attempt || r.Now != now {
			return fmt.Errorf("reply %d (session %s, attempt %d, now %d) is not to its frame", i, Name(r.Session), r.Attempt, r.Now)
		}
	}
	for i, r := range out.Renewed {
		if r.Session != e.Renewals[i].Session || r.Attempt != e.Renewals[i].Attempt || r.Now != now {
			return fmt.Errorf("renewed %d (session %s, attempt %d, now %d) is not to its renewal", i, Name(r.Session), r.Attempt, r.Now)
		}
	}
	return nil
}

// ID is the session id of a name; nobody's is zero.
func ID(name string) (id core.SessionID) {
	if name != "nobody" {
		copy(id[:], name)
	}
	return id
}

// Name is the name of a session id.
func Name(id core.SessionID) string {
	if id == (core.SessionID{}) {
		return "nobody"
	}
	return strings.TrimRight(string(id[:]), "\x00")
}
