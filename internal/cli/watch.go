package cli

import (
	"context"
	"fmt"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

// eventJSON is an event for programs.
type eventJSON struct {
	Revision holdfast.Revision `json:"revision"`
	Event    string            `json:"event"`
	Name     string            `json:"name,omitempty"`
	Token    holdfast.Token    `json:"token,omitempty"`
	Owner    string            `json:"owner,omitempty"`
	Number   *uint64           `json:"number,string,omitempty"`
	Reason   string            `json:"reason,omitempty"`
	Value    *string           `json:"value,omitempty"`
	Base64   []byte            `json:"value_base64,omitempty"`
	Previous *eventPrev        `json:"previous,omitempty"`
}

// eventPrev is what a key was before.
type eventPrev struct {
	Value    *string           `json:"value,omitempty"`
	Base64   []byte            `json:"value_base64,omitempty"`
	Modified holdfast.Revision `json:"modified"`
}

func eventOf(e holdfast.Event) eventJSON {
	j := eventJSON{Revision: e.Revision, Event: e.String(), Name: e.Name, Token: e.Token, Owner: e.Owner, Reason: e.Reason}
	if slices.Contains(numbered, e.String()) {
		j.Number = &e.Number
	}
	if value, is := valueIn(e); is {
		j.Value, j.Base64 = textOrBytes(value)
	}
	if e.Prev != nil {
		j.Previous = &eventPrev{Modified: e.Prev.Modified}
		j.Previous.Value, j.Previous.Base64 = textOrBytes(e.Prev.Value)
	}
	return j
}

// numbered are the events with a Number, which may be 0.
var numbered = []string{"barrier:tripped", "counter:changed", "latch:counted", "semaphore:resized", "sequence:reserved"}

// valueIn is a key's value or a leader's, which may be empty, or what a holder says of itself.
func valueIn(e holdfast.Event) (value []byte, is bool) {
	if e.KV != nil && e.Verb == "put" {
		return e.KV.Value, true
	}
	return e.Value, len(e.Value) > 0 || e.Kind == "election" && e.Token != 0
}

// watching is what the flags of watch say.
type watching struct {
	from     uint64
	patterns []string
	glob     string
	exact    bool
	previous bool
	number   int
}

func (a *app) watchCommand() *cobra.Command {
	var w watching
	c := &cobra.Command{Use: "watch [PREFIX]", Short: "Print what happens, as it happens", Args: cobra.MaximumNArgs(1),
		Long: `Print what happens to names and keys that begin with PREFIX, one event a line:
revision, kind:verb, name, and what belongs to it. The first line is watch:ready:
everything from that revision on follows. A watch:resync means that events were
left out.`,
		Example: `  holdfast watch
  holdfast watch --pattern 'lock:*' jobs/
  holdfast watch --json --pattern kv:put --number 1 config/`}
	f := c.Flags()
	f.Uint64Var(&w.from, "from", 0, "begin with this revision, where the backend keeps history (default: now)")
	f.StringArrayVar(&w.patterns, "pattern", nil, "only events that match kind:verb, with * for either; may be repeated")
	f.StringVar(&w.glob, "glob", "", "only names that match, such as jobs/*")
	f.BoolVar(&w.exact, "exact", false, "only the name that equals PREFIX")
	f.BoolVar(&w.previous, "previous", false, "also what a key was before")
	f.IntVarP(&w.number, "number", "n", 0, "end after so many events, watch:ready not counted (default: never)")
	c.RunE = func(_ *cobra.Command, args []string) error {
		if w.number < 0 {
			return usagef("leave it out to watch without an end", "--number %d is negative", w.number)
		}
		return a.watch(&w, strings.Join(args, ""))
	}
	return c
}

func (w *watching) options() []holdfast.WatchOption {
	opts := []holdfast.WatchOption{holdfast.Patterns(w.patterns), holdfast.Glob(w.glob)}
	if w.exact {
		opts = append(opts, holdfast.ExactName())
	}
	if w.previous {
		opts = append(opts, holdfast.WithPrevious())
	}
	return opts
}

// watch prints events until a signal ends it, which is no failure.
func (a *app) watch(w *watching, prefix string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	s, err := a.openWithin(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil
	case err != nil:
		return err
	}
	defer s.Close()
	seen := 0
	for e, err := range s.Watch(ctx, prefix, holdfast.Revision(w.from), w.options()...) {
		if err != nil {
			return err
		}
		if err := a.print().value(eventOf(e), "%s", eventText(e)); err != nil {
			return err
		}
		if e.Verb != driver.VerbReady {
			seen++
		}
		if seen == w.number && w.number > 0 {
			return nil
		}
	}
	return nil
}

// eventText is an event in one line.
func eventText(e holdfast.Event) string {
	parts := []string{strconv.FormatUint(uint64(e.Revision), 10), e.String()}
	add := func(format string, is bool, v any) {
		if is {
			parts = append(parts, fmt.Sprintf(format, v))
		}
	}
	add("%s", e.Name != "", e.Name)
	add("token=%d", e.Token != 0, e.Token)
	add("owner=%s", e.Owner != "", plain(e.Owner))
	add("number=%d", slices.Contains(numbered, e.String()), e.Number)
	value, is := valueIn(e)
	add("value=%s", is, shown(value))
	add("before=%s", e.Prev != nil, shown(previousValue(e)))
	add("reason=%s", e.Reason != "", plain(e.Reason))
	return strings.Join(parts, " ")
}

func previousValue(e holdfast.Event) []byte {
	if e.Prev == nil {
		return nil
	}
	return e.Prev.Value
}
