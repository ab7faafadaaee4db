package watch

import (
	"fmt"
	"path"
	"strings"

	"github.com/holdfast-io/holdfast/internal/core"
)

// Filter says which events a watcher wants.
type Filter struct {
	Namespace string
	Prefix    string // names that begin with it; "" is all of them, sessions too
	Exact     bool   // only the name that equals Prefix
	// Patterns are kind:verb, either may be *; none: everything.
	Patterns []string
	// Glob also has to match the name, as path.Match does; "": everything.
	Glob string
}

// mask has one bit a verb, for each kind.
type mask [16]uint32

// everything matches all.
func everything() (m mask) {
	for i := range m {
		m[i] = ^uint32(0)
	}
	return m
}

func (m *mask) has(k core.EventKind, v core.Verb) bool {
	return m[k&15]&(1<<(v&31)) != 0
}

// maxGlob is how many bytes a glob may have: all of it is looked at for every event, also if the
// name differs at once.
const maxGlob = 2 << 10

// compile checks the filter and turns its patterns into a mask.
func (f *Filter) compile() (mask, error) {
	if len(f.Glob) > maxGlob {
		return mask{}, fmt.Errorf("the glob %.99q has %d bytes: at most %d are allowed", f.Glob, len(f.Glob), maxGlob)
	}
	if _, err := path.Match(f.Glob, ""); err != nil {
		return mask{}, fmt.Errorf("the glob %.99q is malformed: close every bracket and escape with a backslash", f.Glob)
	}
	if len(f.Patterns) == 0 {
		return everything(), nil
	}
	var m mask
	for _, p := range f.Patterns {
		if err := m.add(p); err != nil {
			return mask{}, err
		}
	}
	return m, nil
}

func (m *mask) add(pattern string) error {
	kind, verb, ok := strings.Cut(pattern, ":")
	if !ok || kind == "" || verb == "" {
		return fmt.Errorf("the pattern %.99q is not kind:verb, such as lock:acquired, lock:* or *:released", pattern)
	}
	found := false
	for k := core.EventLock; k <= core.EventLimit; k++ {
		for v := core.VerbAcquired; v <= core.VerbDelete; v++ {
			if matches(kind, k.String()) && matches(verb, v.String()) {
				m[k] |= 1 << v
				found = true
			}
		}
	}
	if !found {
		return fmt.Errorf("the pattern %.99q names no event", pattern)
	}
	return nil
}

func matches(pattern, s string) bool { return pattern == "*" || pattern == s }

// wants reports whether the watcher wants e; e's name has its prefix.
func (w *Watcher) wants(e *core.Event) bool {
	f := &w.filter
	if e.Revision < w.from || e.Namespace != f.Namespace || !w.mask.has(e.Kind, e.Verb) {
		return false
	}
	if f.Exact && e.Name != f.Prefix {
		return false
	}
	if f.Glob == "" {
		return true
	}
	ok, _ := path.Match(f.Glob, e.Name)
	return ok
}
