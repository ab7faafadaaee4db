package script

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
)

// args are the words after a verb. Each must be asked for: a word that no
// command wanted is an error.
type args struct {
	all   []string // as they stand
	plain []string
	named map[string]string
	err   error
}

func arguments(words []string) *args {
	a := &args{all: words, named: map[string]string{}}
	for _, w := range words {
		if k, v, ok := strings.Cut(w, "="); ok && k != "" && k != "!" {
			a.named[k] = v
		} else {
			a.plain = append(a.plain, w)
		}
	}
	return a
}

func (a *args) text(k string) string {
	v := a.named[k]
	delete(a.named, k)
	return v
}

func (a *args) number(k string) uint64 { return a.parse(a.text(k)) }

func (a *args) parse(v string) uint64 {
	if v == "" {
		return 0
	}
	if n, err := strconv.ParseInt(v, 10, 64); err == nil {
		return uint64(n)
	}
	n, err := strconv.ParseUint(v, 10, 64)
	a.fail(err)
	return n
}

func (a *args) duration(k string) int64 {
	v := a.text(k)
	if v == "" {
		return 0
	}
	d, err := time.ParseDuration(v)
	a.fail(err)
	return int64(d)
}

func (a *args) fail(err error) {
	if a.err == nil {
		a.err = err
	}
}

// flag says whether the word is there and takes it.
func (a *args) flag(word string) bool {
	i := slices.Index(a.plain, word)
	if i >= 0 {
		a.plain = slices.Delete(a.plain, i, i+1)
	}
	return i >= 0
}

// take is the next plain word.
func (a *args) take() string {
	if len(a.plain) == 0 {
		a.fail(fmt.Errorf("a word is missing"))
		return ""
	}
	w := a.plain[0]
	a.plain = a.plain[1:]
	return w
}

func (a *args) done() error {
	if a.err == nil && len(a.plain)+len(a.named) > 0 {
		a.err = fmt.Errorf("words that mean nothing here: %v %v", a.plain, a.named)
	}
	return a.err
}

// command reads one command.
func command(verb string, a *args) (core.Command, error) {
	read, ok := map[string]func(*core.Command, *args){
		"open": open, "end": func(c *core.Command, _ *args) { c.Op = core.OpEnd },
		"acquire": acquire, "release": release,
		"cancel": target(core.OpCancel), "extend": target(core.OpExtend), "upgrade": target(core.OpUpgrade),
		"downgrade": target(core.OpDowngrade), "proclaim": target(core.OpProclaim), "handover": target(core.OpHandOver),
		"force": force, "revoke": revoke, "resize": resize, "delete": remove,
		"count": count, "reserve": reserve, "countdown": countDown, "txn": txn, "limit": ask,
	}[verb]
	if !ok {
		return core.Command{}, fmt.Errorf("unknown verb %s", verb)
	}
	var c core.Command
	read(&c, a)
	return c, a.err
}

func open(c *core.Command, a *args) {
	c.Op = core.OpOpen
	c.TTL, c.Grace, c.Window = a.duration("ttl"), a.duration("grace"), a.number("window")
	c.Namespace, c.Identity, c.Owner, c.Meta = a.text("ns"), a.text("id"), a.text("owner"), a.text("meta")
	c.Policy = map[string]core.Policy{"next": core.OnNextAcquire, "never": core.Never}[a.text("policy")]
	if a.flag("fresh") {
		c.Flags |= core.Fresh
	}
}

func acquire(c *core.Command, a *args) {
	c.Op = core.OpAcquire
	if a.flag("try") {
		c.Flags |= core.Try
	}
	if a.flag("reentrant") {
		c.Flags |= core.Reentrant
	}
	c.Wait, c.MaxHold, c.MinHold, c.Delay = a.duration("wait"), a.duration("max"), a.duration("min"), a.duration("delay")
	c.Value, c.Owner = value(a), a.text("owner")
	for len(a.plain) > 0 {
		c.Wants = append(c.Wants, want(a, a.take()))
	}
}

func value(a *args) []byte {
	if v := a.text("value"); v != "" {
		return []byte(v)
	}
	return nil
}

// want reads kind:name*weight/limit; kind!: is the kind with a mode that it does
// not have.
func want(a *args, word string) core.Want {
	w := core.Want{Kind: core.Mutex}
	if letter, rest, ok := strings.Cut(word, ":"); ok {
		letter, wrong := strings.CutSuffix(letter, "!")
		w.Kind = map[string]core.Kind{
			"m": core.Mutex, "r": core.RWMutex, "w": core.RWMutex, "s": core.Semaphore, "e": core.Election, "l": core.Latch, "b": core.Barrier,
		}[letter]
		if w.Mode = modeOf(letter); wrong {
			w.Mode ^= 1
		}
		word = rest
	}
	word, limit, _ := strings.Cut(word, "/")
	word, weight, _ := strings.Cut(word, "*")
	w.Name, w.Limit, w.Weight = word, int64(a.parse(limit)), int64(a.parse(weight))
	if w.Kind == core.Semaphore && weight == "" {
		w.Weight = 1
	}
	return w
}

func release(c *core.Command, a *args) {
	c.Op = core.OpRelease
	if c.Token = a.number("token"); c.Token != 0 {
		c.Name = a.take()
		return
	}
	c.Target = a.parse(a.take())
}

func target(op core.Op) func(*core.Command, *args) {
	return func(c *core.Command, a *args) {
		c.Op, c.Target = op, a.parse(a.take())
		c.Wait, c.MaxHold, c.Owner, c.Value = a.duration("wait"), a.duration("max"), a.text("owner"), value(a)
	}
}

func now(a *args) core.Flags {
	if a.flag("now") {
		return core.Now
	}
	return 0
}

func force(c *core.Command, a *args) {
	c.Op, c.Flags, c.Name, c.Token = core.OpForce, now(a), a.take(), a.number("token")
}

func revoke(c *core.Command, a *args) {
	c.Op, c.Flags, c.Session = core.OpRevoke, now(a), ID(a.take())
}

func resize(c *core.Command, a *args) {
	c.Op, c.Name, c.Limit = core.OpResize, a.take(), int64(a.parse(a.take()))
}

func remove(c *core.Command, a *args) {
	c.Op, c.Kind, c.Name = core.OpDelete, core.Kind(1+slices.Index(kinds, a.take())), a.take()
}

func count(c *core.Command, a *args) {
	c.Op, c.Unsigned = core.OpCount, a.flag("unsigned")
	c.Name = a.take()
	c.Count = core.CountOp(slices.Index(counts, a.take()))
	if c.Count > core.CountAddAll {
		a.fail(fmt.Errorf("unknown counter operation"))
	}
	if c.Count != core.CountLoad {
		c.A = a.parse(a.take())
	}
	if c.Count == core.CountSwap {
		c.B = a.parse(a.take())
	}
}

func reserve(c *core.Command, a *args) {
	c.Op, c.Name, c.A, c.B = core.OpReserve, a.take(), a.parse(a.take()), a.number("start")
}

func countDown(c *core.Command, a *args) {
	c.Op, c.Name, c.A, c.Limit = core.OpCountDown, a.take(), a.parse(a.take()), int64(a.number("limit"))
}

// ask reads what limitWords writes.
func ask(c *core.Command, a *args) {
	c.Op, c.Name, c.Ask = core.OpLimit, a.take(), &core.LimitAsk{Key: a.take()}
	op := slices.Index(asks, a.take())
	if op < 0 {
		a.fail(fmt.Errorf("unknown operation of a limiter"))
		return
	}
	c.Ask.Op, c.Ask.Cost, c.Ask.Wait = core.LimitOp(op), int64(a.parse(a.take())), a.duration("within")
	if parts := a.fields("of", "cost/at/until/given/epoch"); parts != nil {
		v := &c.Ask.Reservation
		v.Cost, v.At, v.Until = int64(a.parse(parts[0])), int64(a.parse(parts[1])), int64(a.parse(parts[2]))
		v.Given, v.Epoch = int64(a.parse(parts[3])), a.parse(parts[4])
	}
	if parts := a.fields("rate", "algorithm/count/time/burst"); parts != nil {
		per, err := time.ParseDuration(parts[2])
		a.fail(err)
		r := &c.Ask.Rate
		r.Count, r.Per, r.Burst = int64(a.parse(parts[1])), per, int64(a.parse(parts[3]))
		setUint8(&r.Algorithm, a.parse(parts[0]))
	}
}

// fields are the parts of a word that are named in its form; nil: it is not there.
func (a *args) fields(k, form string) []string {
	v := a.text(k)
	if v == "" {
		return nil
	}
	parts := strings.Split(v, "/")
	if len(parts) != strings.Count(form, "/")+1 {
		a.fail(fmt.Errorf("%s is given as %s", k, form))
		return nil
	}
	return parts
}

func setUint8[T ~uint8](field *T, n uint64) { *field = T(n) }
