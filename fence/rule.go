package fence

import (
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-io/holdfast/driver"
)

// maxUsed bounds what a strict gate remembers of one resource.
const maxUsed = 4096

// Refusal says why a token did not pass, inside a *driver.Error of kind
// driver.ErrStale.
type Refusal struct {
	Token Token
	Mode  Mode
	// LastExclusive and LastShared are the newest tokens of each mode that the
	// gate let pass; 0: none yet.
	LastExclusive, LastShared Token
	// Repeated: the token is not too old, but it passed a strict gate before.
	Repeated bool
}

// Error names the tokens and says what to do next.
func (r *Refusal) Error() string {
	const lost = "the hold was lost: stop, and acquire again for a new token"
	switch {
	case r.Repeated:
		return fmt.Sprintf("%s token %d already used, and this gate takes each token once: "+
			"see whether the first use did the work, or acquire again for a new token", modeName(r.Mode), r.Token)
	case r.Token < r.LastExclusive:
		return fmt.Sprintf("%s token %d is older than exclusive token %d, which was here before; %s",
			modeName(r.Mode), r.Token, r.LastExclusive, lost)
	}
	return fmt.Sprintf("%s token %d is not newer than shared token %d, which was here before; %s",
		modeName(r.Mode), r.Token, r.LastShared, lost)
}

// errUsedFull: refusing is the only safe answer, forgetting one of them would
// let it pass again.
var errUsedFull = fmt.Errorf("%d shared tokens passed since the last exclusive one, more than a strict gate remembers; "+
	"the next exclusive token makes room", maxUsed)

// state is what a gate remembers of one resource.
type state struct {
	exclusive, shared Token // the newest that passed; 0: none yet
	// used are the shared tokens that passed a strict gate since exclusive,
	// ascending. Older ones need no memory: they are stale.
	used []Token
}

// check says why a token must not pass, without changing anything.
func (s *state) check(p Pass, strict bool) error {
	switch {
	case s.stale(p) || strict && s.passed(p.Token):
		return s.refusal(p, strict)
	case strict && p.Mode == Shared && len(s.used) >= maxUsed:
		return errUsedFull
	}
	return nil
}

// stale is the rule of the package.
func (s *state) stale(p Pass) bool {
	return p.Token < s.exclusive || p.Mode == Exclusive && p.Token <= s.shared
}

func (s *state) refusal(p Pass, strict bool) *Refusal {
	return &Refusal{p.Token, p.Mode, s.exclusive, s.shared, strict && !s.stale(p)}
}

func (s *state) passed(token Token) bool {
	_, used := slices.BinarySearch(s.used, token)
	return used || token == s.exclusive
}

// record remembers a token that check let pass, and reports whether there was
// anything new to remember.
func (s *state) record(p Pass, strict bool) (changed bool) {
	if p.Mode == Exclusive {
		changed = p.Token != s.exclusive
		s.exclusive, s.used = p.Token, nil
		return changed
	}
	if strict {
		at, _ := slices.BinarySearch(s.used, p.Token)
		s.used = slices.Insert(s.used, at, p.Token)
	}
	changed = strict || p.Token > s.shared
	s.shared = max(s.shared, p.Token)
	return changed
}

// refuse dresses the result of a check.
func refuse(op string, p Pass, err error) error {
	kind := driver.ErrStale
	if errors.Is(err, errUsedFull) {
		kind = driver.ErrExhausted
	}
	return driver.Errorf(op, p.Resource, kind, "%w", err)
}
