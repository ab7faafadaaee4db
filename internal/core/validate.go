package core

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-io/holdfast/limit"
)

// refuse makes r a refusal; the text says why and what to do.
func (r *Result) refuse(code Code, format string, args ...any) {
	r.Code, r.Text = code, fmt.Sprintf(format, args...)
}

func clone(s string) string { return strings.Clone(s) }

// badName says what is wrong with a name; "": nothing.
func (m *Machine) badName(name string) string {
	switch {
	case name == "":
		return "the name is empty: give one of 1 to 512 bytes"
	case len(name) > m.cfg.Name:
		return fmt.Sprintf("the name has %d bytes: at most %d are allowed", len(name), m.cfg.Name)
	case plain(name):
		return ""
	case !utf8.ValidString(name):
		return fmt.Sprintf("the name %q is not valid UTF-8", name)
	case strings.ContainsFunc(name, unicode.IsControl):
		return fmt.Sprintf("the name %q has a control character", name)
	}
	return ""
}

// plain says that all bytes are printable ASCII, as they mostly are.
func plain(name string) bool {
	for i := range len(name) {
		if name[i] < 0x20 || name[i] >= 0x7f {
			return false
		}
	}
	return true
}

func (m *Machine) validName(name string, r *Result) bool {
	bad := m.badName(name)
	if bad != "" {
		r.refuse(CodeInvalid, "%s", bad)
	}
	return bad == ""
}

func (m *Machine) validOpen(f *Frame, c *Command, r *Result) bool {
	switch {
	case c.Seq != 0:
		r.refuse(CodeInvalid, "Open has no number: it may be sent as often as need be")
	case f.Session == SessionID{}:
		r.refuse(CodeInvalid, "the session id is zero: choose one at random")
	case c.TTL <= 0 || c.TTL > m.cfg.MaxTTL:
		r.refuse(CodeInvalid, "a TTL of %d ns is out of range: give 1 to %d", c.TTL, m.cfg.MaxTTL)
	case c.Grace < 0 || c.Grace > m.cfg.MaxTTL:
		r.refuse(CodeInvalid, "a grace of %d ns is out of range: give 0 to %d", c.Grace, m.cfg.MaxTTL)
	case c.Policy > Never:
		r.refuse(CodeInvalid, "policy %d is unknown", c.Policy)
	case len(c.Identity) > m.cfg.Name || len(c.Owner) > m.cfg.Name:
		r.refuse(CodeInvalid, "identity or owner is longer than %d bytes", m.cfg.Name)
	case len(c.Meta) > m.cfg.Meta:
		r.refuse(CodeInvalid, "the metadata has %d bytes: at most %d are allowed", len(c.Meta), m.cfg.Meta)
	case c.Namespace != "" && !m.validName(c.Namespace, r):
	default:
		return true
	}
	return false
}

// maxSpan bounds every span of time, so that no sum with cluster time overflows.
const maxSpan = int64(1) << 61

func validSpan(what string, d int64, r *Result) bool {
	if d < 0 || d > maxSpan {
		r.refuse(CodeInvalid, "%s of %d ns is out of range: give 0 for none, or up to 2⁶¹", what, d)
		return false
	}
	return true
}

// validAcquire checks the command and the wants, which are in order of name, by
// themselves.
func (m *Machine) validAcquire(c *Command, wants []Want, r *Result) bool {
	switch {
	case len(wants) == 0:
		r.refuse(CodeInvalid, "nothing is wanted: give at least one name")
		return false
	case len(wants) > m.cfg.Ops:
		r.refuse(CodeInvalid, "%d names in one claim: at most %d are allowed", len(wants), m.cfg.Ops)
		return false
	case len(c.Owner) > m.cfg.Name:
		r.refuse(CodeInvalid, "the owner has %d bytes: at most %d are allowed", len(c.Owner), m.cfg.Name)
		return false
	case !validSpan("a wait", c.Wait, r) || !validSpan("a max-hold", c.MaxHold, r) ||
		!validSpan("a min-hold", c.MinHold, r) || !validSpan("a delay", c.Delay, r):
		return false
	}
	for i := range wants {
		if !m.validWant(&wants[i], len(wants) > 1, r) {
			return false
		}
		if i > 0 && wants[i-1].Name == wants[i].Name {
			r.refuse(CodeInvalid, "%q is wanted twice in one claim: want it once, with the sum of the weights", wants[i].Name)
			return false
		}
	}
	return true
}

func (m *Machine) validWant(w *Want, several bool, r *Result) bool {
	if !m.validName(w.Name, r) {
		return false
	}
	exclusive := w.Kind == Mutex || w.Kind == Election
	switch {
	case w.Kind < Mutex || w.Kind > Barrier:
		r.refuse(CodeInvalid, "%q is wanted as kind %s, which cannot be held", w.Name, w.Kind)
	case w.Kind != RWMutex && exclusive != (w.Mode == Exclusive) || w.Mode > Shared:
		r.refuse(CodeInvalid, "%q is wanted in mode %s, which its kind does not have", w.Name, w.Mode)
	case w.Limit < 0 || w.Limit != 0 && (exclusive || w.Kind == RWMutex):
		r.refuse(CodeInvalid, "%q is wanted with limit %d, which makes no sense for its kind", w.Name, w.Limit)
	case w.Kind == Semaphore && w.Weight < 1:
		r.refuse(CodeInvalid, "weight %d of semaphore %q is too small: take at least 1", w.Weight, w.Name)
	case w.Kind != Semaphore && (w.Weight < 0 || w.Weight > 1):
		r.refuse(CodeInvalid, "weight %d of %q: only semaphores have weights", w.Weight, w.Name)
	case several && (w.Kind == Latch || w.Kind == Barrier):
		r.refuse(CodeInvalid, "latches and barriers cannot be waited for together with other names: wait for %q alone", w.Name)
	default:
		return true
	}
	return false
}

// measures are what callers call the limit of a kind.
var measures = map[Kind]string{Semaphore: "its limit", Latch: "its count", Barrier: "its number of parties"}

// validFor checks a want against what its name is.
func (m *Machine) validFor(res *resource, w *Want, r *Result) bool {
	limit := w.Limit
	limited := w.Kind == Semaphore || w.Kind == Latch || w.Kind == Barrier
	switch {
	case res != nil && res.kind != w.Kind:
		r.refuse(CodeConflict, "%q is of kind %s, not %s: use another name, or delete it first", w.Name, res.kind, w.Kind)
		return false
	case res == nil && limited && limit == 0:
		r.refuse(CodeNotExist, "%q does not exist: give %s to make it", w.Name, measures[w.Kind])
		return false
	case res == nil && w.Kind == Barrier && limit > int64(m.cfg.Budget) && !m.early:
		r.refuse(CodeInvalid, "%q would be a barrier of %d parties: at most %d can pass together", w.Name, limit, m.cfg.Budget)
		return false
	case res != nil && w.Kind == Barrier && limit != 0 && limit != res.limit:
		r.refuse(CodeConflict, "%q has %d parties, not %d: give 0 for as many as it has, or delete it first", w.Name, res.limit, limit)
		return false
	case res != nil && w.Kind == Semaphore && limit != 0 && limit != res.limit:
		r.refuse(CodeConflict, "%q has limit %d, not %d: give 0 for the one it has, or resize it", w.Name, res.limit, limit)
		return false
	case res != nil:
		limit = res.limit
	}
	if w.Kind == Semaphore && w.Weight > limit {
		r.refuse(CodeInvalid, "weight %d of %q is above its limit %d: it could never be granted", w.Weight, w.Name, limit)
		return false
	}
	return true
}

// validAsk checks what a limiter is asked, by itself.
func (m *Machine) validAsk(c *Command, r *Result) bool {
	a := c.Ask
	switch {
	case a == nil:
		r.refuse(CodeInvalid, "limiter %q is asked nothing", c.Name)
	case !m.validName(c.Name, r) || !m.validLimitKey(a.Key, r):
	case a.Op > LimitSetRate:
		r.refuse(CodeInvalid, "limiter operation %d is unknown", a.Op)
	case a.Cost < 0:
		r.refuse(CodeInvalid, "a cost of %d makes no sense: give at least 0", a.Cost)
	case a.Wait < 0 || a.Wait > int64(limit.MaxPer) || a.Ahead < 0 || a.Ahead > int64(limit.MaxPer):
		r.refuse(CodeInvalid, "a wait of %d ns or %d ns ahead is out of range: give 0 to %d", a.Wait, a.Ahead, int64(limit.MaxPer))
	case !validReservation(&a.Reservation):
		r.refuse(CodeInvalid, "the reservation is none of a limiter")
	default:
		return m.validRate(a, r)
	}
	return false
}

func (m *Machine) validLimitKey(key string, r *Result) bool {
	if key == "" {
		return true
	}
	bad := m.badName(key)
	if bad != "" {
		r.refuse(CodeInvalid, "the key of a limiter is no name: %s", bad)
	}
	return bad == ""
}

func validReservation(v *limit.Reservation) bool {
	return v.Cost >= 0 && v.Cost <= limit.MaxCount && v.At >= 0 && v.Until >= 0 && v.Given >= 0
}

// validRate checks a rate that is said; only a new one must be.
func (m *Machine) validRate(a *LimitAsk, r *Result) bool {
	if a.Rate.Count == 0 && a.Op != LimitSetRate {
		return true
	}
	if err := a.Rate.Check(); err != nil {
		r.refuse(CodeInvalid, "%v", err)
		return false
	}
	return true
}
