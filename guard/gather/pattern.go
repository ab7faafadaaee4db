package gather

import (
	"fmt"
	"io/fs"
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

// kinds are those of events, see docs/events.md, and those made of keys.
var kinds = []string{"*", "lock", "rwlock", "semaphore", "election", "latch", "barrier", "session", "counter", "sequence", "limit", "kv", "guard", "pipeline"}

// ParsePattern reads kind:verb or kind:glob:verb. The glob is all between the first and
// the last colon: semaphore:agents:* are all events of the semaphore agents.
func ParsePattern(text string) (p Pattern, err error) {
	parts := strings.Split(text, ":")
	if len(parts) < 2 {
		return p, fmt.Errorf("guard: the pattern %q is neither kind:verb nor kind:name:verb: %w", text, fs.ErrInvalid)
	}
	p = Pattern{Kind: parts[0], Verb: parts[len(parts)-1], Glob: strings.Join(parts[1:len(parts)-1], ":")}
	_, bad := path.Match(p.Glob, "")
	switch {
	case !slices.Contains(kinds, p.Kind):
		return p, fmt.Errorf("guard: the pattern %q: there is no kind %q, only %s: %w", text, p.Kind, strings.Join(kinds, " "), fs.ErrInvalid)
	case p.Verb == "":
		return p, fmt.Errorf("guard: the pattern %q has no verb; * is any: %w", text, fs.ErrInvalid)
	case bad != nil:
		return p, fmt.Errorf("guard: the pattern %q: the name %q is no glob: %w", text, p.Glob, fs.ErrInvalid)
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
