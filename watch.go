package holdfast

import (
	"context"
	"errors"
	"iter"
	"path"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast/driver"
)

// WatchOption narrows a Watch: [Patterns], [Glob], [ExactName], [WithPrevious].
type WatchOption interface{ watch(*driver.WatchRequest) }

// Patterns asks only for events that match one of these, written kind:verb with
// * for either: "lock:acquired", "kv:*". One of a kind or verb that no event has is
// ErrInvalid; watch:ready and watch:resync are told whatever is asked for.
type Patterns []string

func (p Patterns) watch(r *driver.WatchRequest) { r.Patterns = append(r.Patterns, p...) }

// Glob asks only for names that match, as path.Match does.
type Glob string

func (g Glob) watch(r *driver.WatchRequest) { r.Glob = string(g) }

type watchFunc func(*driver.WatchRequest)

func (f watchFunc) watch(r *driver.WatchRequest) { f(r) }

// ExactName asks only for the name that equals the prefix.
func ExactName() WatchOption { return watchFunc(func(r *driver.WatchRequest) { r.Exact = true }) }

// WithPrevious asks for what a key was before, in Event.Prev.
func WithPrevious() WatchOption { return watchFunc(func(r *driver.WatchRequest) { r.Previous = true }) }

// Watch yields what happens to names and keys that begin with prefix, in order,
// until ctx ends, which is no error. from is the first revision wanted; 0 is
// from now on. Another one needs the feature "watch-history", else it is
// errors.ErrUnsupported. A node keeps the newest 16,384 events or those with names
// and values of 64 MiB, whichever are fewer, but its newest log entry whole; a
// revision before that is ErrCompacted, and so is one of a server that was lost, at
// the one that began on an empty directory in its place. The first event is watch:ready, with the
// revision from which everything follows. Where events are missing there is a watch:resync (read
// the state anew) or the error ErrCompacted: never a silent gap. An error is
// the last pair.
func (s *Space) Watch(ctx context.Context, prefix string, from Revision, opts ...WatchOption) iter.Seq2[Event, error] {
	r := &driver.WatchRequest{Prefix: s.prefix + prefix, From: from}
	for o := range given(opts) {
		o.watch(r)
	}
	err := firstError(checkPrefix(r.Prefix, s.r.maxName()), checkGlob(r.Glob), checkPatterns(r.Patterns))
	if from > 0 {
		err = firstError(err, s.r.lacks(driver.FeatureHistory))
	}
	if r.Glob != "" {
		r.Glob = escapeGlob(s.prefix) + r.Glob
	}
	return s.relative(s.r.watch(ctx, "watch", err, r))
}

func checkGlob(glob string) error {
	if _, err := path.Match(glob, ""); err != nil {
		return invalid("Glob(%q): %w", glob, err)
	}
	return nil
}

// What patterns can name: docs/events.md.
var (
	eventKinds = strings.Fields("* lock rwlock semaphore election latch barrier session counter sequence kv limit")
	eventVerbs = strings.Fields("* acquired released denied queued stale reclaimed revoked expired upgraded downgraded extended proclaimed resized deleted opened ended counted tripped changed reserved put delete")
)

func checkPatterns(patterns []string) error {
	for _, p := range patterns {
		kind, verb, ok := strings.Cut(p, ":")
		if !ok || kind == "" || verb == "" {
			return invalid("the pattern %q is not kind:verb; use * for either, as in lock:*", p)
		}
		if !slices.Contains(eventKinds, kind) || !slices.Contains(eventVerbs, verb) {
			return invalid("the pattern %q names no event; the kinds are %s, the verbs %s", p, strings.Join(eventKinds, " "), strings.Join(eventVerbs, " "))
		}
	}
	return nil
}

var globEscaper = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

// escapeGlob makes a prefix mean itself in a glob.
func escapeGlob(prefix string) string { return globEscaper.Replace(prefix) }

// watch asks the driver and spells out its errors.
func (r *spaceState) watch(ctx context.Context, op string, err error, w *driver.WatchRequest) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		if err := firstError(err, r.ready(ctx, driver.FeatureWatch)); err != nil {
			if ctx.Err() == nil || !errors.Is(err, ctx.Err()) {
				yield(Event{}, wrap(op, w.Prefix, err))
			}
			return
		}
		for ev, err := range r.d.Watch(ctx, w) {
			if err != nil && ctx.Err() != nil {
				return
			}
			if err != nil {
				yield(Event{}, r.wrap(ctx, op, w.Prefix, driver.FeatureWatch, err))
				return
			}
			if !yield(ev, nil) {
				return
			}
		}
	}
}

// relative takes the prefix of a Sub off the names.
func (s *Space) relative(events iter.Seq2[Event, error]) iter.Seq2[Event, error] {
	if s.prefix == "" {
		return events
	}
	return func(yield func(Event, error) bool) {
		for ev, err := range events {
			ev.Name = trim(ev.Name, s.prefix)
			ev.KV, ev.Prev = s.relativeKV(ev.KV), s.relativeKV(ev.Prev)
			if !yield(ev, err) {
				return
			}
		}
	}
}

func (s *Space) relativeKV(kv *driver.KV) *driver.KV {
	if kv == nil {
		return nil
	}
	own := *kv
	own.Key = trim(own.Key, s.prefix)
	return &own
}

func trim(name, prefix string) string { return strings.TrimPrefix(name, prefix) }
