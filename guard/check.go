package guard

import (
	"fmt"
	"io/fs"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// The bounds of a condition.
const (
	MaxDepth  = 32
	MaxLeaves = 1024
	MaxName   = 512 // bytes of what a backend is asked for by name, of a key and of an owner
	maxText   = 4096
)

// Check says what is wrong with the condition, with the path to it.
func (c *Condition) Check() error {
	leaves := 0
	return c.check("", 0, &leaves)
}

func (c *Condition) check(path string, depth int, leaves *int) error {
	at := join(path, c.Kind)
	switch c.Kind {
	case KindAll, KindAny, KindNot:
		return c.checkParts(at, depth, leaves)
	}
	if *leaves++; *leaves > MaxLeaves {
		return invalid(at, "more than %d leaves", MaxLeaves)
	}
	if len(c.Of) > 0 {
		return invalid(at, "a leaf has no parts")
	}
	return c.checkLeaf(at)
}

func (c *Condition) checkParts(at string, depth int, leaves *int) error {
	if err := c.checkShape(at, depth); err != nil {
		return err
	}
	for i := range c.Of {
		if err := c.Of[i].check(part(at, c.Kind, i), depth+1, leaves); err != nil {
			return err
		}
	}
	return nil
}

// checkShape refuses what could not be decided, whatever the facts.
func (c *Condition) checkShape(at string, depth int) error {
	switch {
	case c.tooDeep(depth):
		return invalid(at, "more than %d levels", MaxDepth)
	case c.badNot():
		return invalid(at, "%d parts; not has one", len(c.Of))
	}
	return nil
}

// tooDeep: its parts are below the last level; one of nothing is as deep as a leaf.
func (c *Condition) tooDeep(depth int) bool {
	return depth >= MaxDepth && len(c.Of) > 0 && c.composed()
}

func (c *Condition) badNot() bool { return c.Kind == KindNot && len(c.Of) != 1 }

func (c *Condition) checkLeaf(at string) error {
	for _, text := range []string{c.Name, c.Other} {
		if len(text) > maxText || strings.ContainsFunc(text, unicode.IsControl) {
			return invalid(at, "a text has more than %d bytes or a control character", maxText)
		}
	}
	if c.Name == "" && c.Kind != KindTimeWindow {
		return invalid(at, "the name is empty")
	}
	if err := c.checkNames(at); err != nil {
		return err
	}
	switch c.Kind {
	case KindLockHeldBy, KindBranchMerged, KindIssueStatus:
		if c.Other == "" {
			return invalid(at, "what it is compared with is empty")
		}
	case KindSemaphoreAvailable, KindLimitAvailable:
		if c.Amount < 1 {
			return invalid(at, "the amount %d is below 1", c.Amount)
		}
		return c.checkLimit(at)
	case KindCounter:
		return c.checkRelation(at, Equal, NotEqual, AtLeast, AtMost)
	case KindKey:
		return c.checkRelation(at, Exists, Absent, Equal)
	case KindTimeWindow:
		return c.Window.check(at)
	case KindLockFree, KindBranchExists, KindBranchNotExists, KindIssuesComplete, KindFileExists, KindFileNotExists,
		KindSessionAlive, KindCustomCheck, KindLeader:
	default:
		return invalid(at, "the kind is unknown")
	}
	return nil
}

// checkNames refuses what no backend takes for a name, a key or an owner: it could never be looked for.
func (c *Condition) checkNames(at string) error {
	for _, name := range c.names() {
		if len(name) > MaxName {
			return invalid(at, "the name has %d bytes; at most %d are allowed", len(name), MaxName)
		}
		if !utf8.ValidString(name) {
			return invalid(at, "the name %q is not UTF-8", name)
		}
	}
	return nil
}

// names are the texts of a leaf that a backend knows.
func (c *Condition) names() []string {
	switch c.Kind {
	case KindLockFree, KindSemaphoreAvailable, KindCounter, KindKey:
		return []string{c.Name}
	case KindLockHeldBy, KindLeader, KindLimitAvailable:
		return []string{c.Name, c.Other}
	}
	return nil
}

func (c *Condition) checkLimit(at string) error {
	switch {
	case c.Limit != 0 && c.Kind != KindSemaphoreAvailable:
		return invalid(at, "only a semaphore has a limit")
	case c.Limit != 0 && c.Limit < c.Amount:
		return invalid(at, "the amount %d is above the limit %d: so much is never free", c.Amount, c.Limit)
	}
	return nil
}

func (c *Condition) checkRelation(at string, allowed ...Relation) error {
	for _, r := range allowed {
		if c.Is == r {
			return nil
		}
	}
	return invalid(at, "the relation %q is none of %q", c.Is, allowed)
}

func (w *Window) check(at string) error {
	const day = 24 * time.Hour
	if w.From < 0 || w.From >= day || w.To < 0 || w.To >= day {
		return invalid(at, "from %s to %s is not within a day", w.From, w.To)
	}
	if w.Offset < -18*time.Hour || w.Offset > 18*time.Hour {
		return invalid(at, "the offset %s is more than 18h", w.Offset)
	}
	for _, d := range w.Days {
		if d < time.Sunday || d > time.Saturday {
			return invalid(at, "there is no day %d", d)
		}
	}
	return nil
}

// join and part name a place within a condition: all[2].not.file_exists.
func join(path string, k Kind) string {
	if path == "" {
		return string(k)
	}
	return path + "." + string(k)
}

func part(at string, k Kind, i int) string {
	if k == KindNot {
		return at
	}
	return fmt.Sprintf("%s[%d]", at, i)
}

func invalid(at, format string, args ...any) error {
	return fmt.Errorf("guard: %s: %s: %w", at, fmt.Sprintf(format, args...), fs.ErrInvalid)
}
