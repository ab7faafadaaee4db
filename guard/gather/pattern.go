package gather

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

// Pattern chooses events by kind and verb, and by name.
type Pattern struct {
	Kind, Verb string // * is any
	// Glob matches the name, as path.Match does; empty: any name.
	Glob string
}

// kinds are those of events, and verbs what each has: see docs/events.md. Those of guard and pipeline are made of keys.
var kinds = []string{"*", "lock", "rwlock", "semaphore", "election", "latch", "barrier", "session", "counter", "sequence", "limit", "kv", "guard", "pipeline"}

const claimVerbs = "acquired released denied queued stale revoked expired extended"

var verbs = map[string][]string{
	"lock":      strings.Fields(claimVerbs + " reclaimed"),
	"rwlock":    strings.Fields(claimVerbs + " reclaimed upgraded downgraded"),
	"semaphore": strings.Fields(claimVerbs + " reclaimed resized deleted"),
	"election":  strings.Fields(claimVerbs + " reclaimed proclaimed"),
	"latch":     strings.Fields(claimVerbs + " deleted counted opened"),
	"barrier":   strings.Fields(claimVerbs + " deleted tripped"),
	"session":   strings.Fields("opened ended expired revoked"),
	"counter":   strings.Fields("changed deleted"),
	"sequence":  strings.Fields("reserved deleted"),
	"limit":     strings.Fields("changed"),
	"kv":        strings.Fields("put delete"),
	"guard":     strings.Fields("evaluating failed passed"),
	"pipeline":  strings.Fields("queued waiting resumed acquiring launching running lost pausing unknown stopping done failed cancelled"),
}

// verbsOf are the verbs of a kind; of * those of all.
func verbsOf(kind string) []string {
	if kind != "*" {
		return verbs[kind]
	}
	var all []string
	for _, list := range verbs {
		all = append(all, list...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// ParsePattern reads kind:verb or kind:glob:verb. The glob is all between the first and
// the last colon: semaphore:agents:* are all events of the semaphore agents.
func ParsePattern(text string) (p Pattern, err error) {
	parts := strings.Split(text, ":")
	if len(parts) < 2 {
		return p, fmt.Errorf("guard: the pattern %q is neither kind:verb nor kind:name:verb: %w", text, holdfast.ErrInvalid)
	}
	p = Pattern{Kind: parts[0], Verb: parts[len(parts)-1], Glob: strings.Join(parts[1:len(parts)-1], ":")}
	_, bad := path.Match(p.Glob, "")
	switch {
	case !slices.Contains(kinds, p.Kind):
		return p, fmt.Errorf("guard: the pattern %q: there is no kind %q, only %s: %w", text, p.Kind, strings.Join(kinds, " "), holdfast.ErrInvalid)
	case p.Verb == "":
		return p, fmt.Errorf("guard: the pattern %q has no verb; * is any: %w", text, holdfast.ErrInvalid)
	case p.Verb != "*" && !slices.Contains(verbsOf(p.Kind), p.Verb):
		return p, fmt.Errorf("guard: the pattern %q: no event of %s has the verb %q, only %s, and * for any; a pattern is kind:verb or kind:name:verb: %w",
			text, p.Kind, p.Verb, strings.Join(verbsOf(p.Kind), " "), holdfast.ErrInvalid)
	case bad != nil:
		return p, fmt.Errorf("guard: the pattern %q: the name %q is no glob: %w", text, p.Glob, holdfast.ErrInvalid)
	}
	return p, nil
}

// ParsePatterns reads several as [ParsePattern] does, or none of them.
func ParsePatterns(texts []string) (all []Pattern, err error) {
	for _, text := range texts {
		p, err := ParsePattern(text)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// String is the pattern as it is read.
func (p Pattern) String() string {
	if p.Glob == "" {
		return p.Kind + ":" + p.Verb
	}
	return p.Kind + ":" + p.Glob + ":" + p.Verb
}

// Match reports that the event is one of the pattern. Events under [EventPrefix] are those
// that their key names.
func (p Pattern) Match(e *holdfast.Event) bool {
	kind, verb, name := named(e)
	if p.Kind != "*" && p.Kind != kind || p.Verb != "*" && p.Verb != verb {
		return false
	}
	ok, _ := path.Match(p.Glob, name)
	return ok || p.Glob == ""
}

// EventPrefix is where events that no backend has are keys: kind/verb/name.
const EventPrefix = "holdfast/events/"

// named is what an event is called.
func named(e *holdfast.Event) (kind, verb, name string) {
	if rest, ok := strings.CutPrefix(e.Name, EventPrefix); ok && e.Kind == "kv" && e.Verb == "put" {
		if parts := strings.SplitN(rest, "/", 3); len(parts) == 3 {
			return parts[0], parts[1], parts[2]
		}
	}
	return e.Kind, e.Verb, e.Name
}

// prefixes are what the names of the pattern's events, or their keys, begin with. A
// backend that does not know stale holders tells no refusal: there the manager does, by keys.
func (p Pattern) prefixes(features map[driver.Feature]bool) []string {
	switch {
	case p.Kind == "guard" || p.Kind == "pipeline":
		return []string{EventPrefix}
	case p.Kind == "*":
		return []string{""}
	case (p.Verb == "denied" || p.Verb == "*") && !features[driver.FeatureReclaim]:
		return []string{EventPrefix, p.literal()}
	}
	return []string{p.literal()}
}

// literal is the glob up to its first special character.
func (p Pattern) literal() string {
	if i := strings.IndexAny(p.Glob, `*?[\`); i >= 0 {
		return p.Glob[:i]
	}
	return p.Glob
}
