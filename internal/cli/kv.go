package cli

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast"
)

// entryJSON is a key for programs. A value that is no text is in base64.
type entryJSON struct {
	Key       string            `json:"key"`
	Value     *string           `json:"value,omitempty"`
	Base64    []byte            `json:"value_base64,omitempty"`
	Created   holdfast.Revision `json:"created"`
	Modified  holdfast.Revision `json:"modified"`
	Version   uint64            `json:"version"`
	Session   string            `json:"session,omitempty"`
	ExpiresIn float64           `json:"expires_in_seconds,omitempty"`
}

func entryOf(e holdfast.Entry) entryJSON {
	j := entryJSON{Key: e.Key, Created: e.Created, Modified: e.Modified, Version: e.Version, ExpiresIn: e.ExpiresIn.Seconds()}
	j.Value, j.Base64 = textOrBytes(e.Value)
	if e.Session != (holdfast.SessionID{}) {
		j.Session = e.Session.String()
	}
	return j
}

// textOrBytes is a value as text, or as bytes if it is none.
func textOrBytes(value []byte) (*string, []byte) {
	if !utf8.Valid(value) {
		return nil, value
	}
	text := string(value)
	return &text, nil
}

func (a *app) kvCommand() *cobra.Command {
	c := &cobra.Command{Use: "kv", Short: "Keep small values under keys", Args: subcommand,
		Example: "  holdfast kv put config/colour blue\n  holdfast kv get config/colour\n  holdfast kv ls config/",
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() }}
	c.AddCommand(a.kvGet(), a.kvPut(), a.kvDelete(), a.kvList())
	return c
}

func (a *app) kvGet() *cobra.Command {
	return &cobra.Command{Use: "get KEY", Short: "Print a value; exit with 1 if there is none", Args: cobra.ExactArgs(1), Example: "  holdfast kv get config/colour",
		RunE: a.asking(func(ctx context.Context, s *holdfast.Space, args []string) error {
			e, err := s.KV().Get(ctx, args[0])
			if err != nil {
				return err
			}
			return a.print().value(entryOf(e), "%s", e.Value)
		})}
}

// change is when a put or delete is wanted.
type change struct {
	absent   bool
	revision uint64
	expire   time.Duration
}

func (a *app) kvPut() *cobra.Command {
	var ch change
	c := &cobra.Command{Use: "put KEY VALUE", Short: "Set a key and print its revision; the value - is read from the input", Args: cobra.ExactArgs(2),
		Example: `  holdfast kv put config/colour blue
  holdfast kv put --if-absent config/colour blue
  holdfast kv put --expire 10m cache/page - < page.html`}
	f := c.Flags()
	f.BoolVar(&ch.absent, "if-absent", false, "only if there is no such key; exit with 1 if there is")
	f.Uint64Var(&ch.revision, "if-revision", 0, "only if its last change was at this revision; exit with 1 if not")
	f.DurationVar(&ch.expire, "expire", 0, "end the key by itself after so long")
	var value []byte
	put := a.asking(func(ctx context.Context, s *holdfast.Space, args []string) error {
		var opts []holdfast.PutOption
		if f.Changed("expire") {
			opts = append(opts, holdfast.Expire(ch.expire))
		}
		rev, err := ch.put(ctx, s.KV(), args[0], value, opts)
		return a.printRevision(args[0], rev, err)
	})
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		if err = ch.check(f.Changed("if-revision")); err == nil {
			value, err = a.valueOf(args[1]) // before signals are caught: the input may take long
		}
		return orUsage(err, put, c, args)
	}
	return c
}

// orUsage runs a command unless its flags are wrong.
func orUsage(err error, run func(*cobra.Command, []string) error, c *cobra.Command, args []string) error {
	if err != nil {
		return err
	}
	return run(c, args)
}

func (ch *change) check(given bool) error {
	switch {
	case given && ch.absent:
		return usagef("use one of them", "--if-absent and --if-revision do not go together")
	case given && ch.revision == 0:
		return usagef("use --if-absent for a key that does not exist", "--if-revision 0 means no key")
	}
	return nil
}

func (ch *change) put(ctx context.Context, kv *holdfast.KV, key string, value []byte, opts []holdfast.PutOption) (holdfast.Revision, error) {
	switch {
	case ch.absent:
		return kv.Create(ctx, key, value, opts...)
	case ch.revision != 0:
		return kv.CompareAndSwap(ctx, key, holdfast.Revision(ch.revision), value, opts...)
	}
	return kv.Put(ctx, key, value, opts...)
}

// valueOf is the argument, or what is on the input.
func (a *app) valueOf(arg string) ([]byte, error) {
	if arg != "-" {
		return []byte(arg), nil
	}
	return io.ReadAll(a.in)
}

func (a *app) printRevision(key string, rev holdfast.Revision, err error) error {
	if err != nil {
		return err
	}
	return a.print().value(map[string]any{"key": key, "revision": rev}, "%d", rev)
}

func (a *app) kvDelete() *cobra.Command {
	var ch change
	c := &cobra.Command{Use: "delete KEY", Short: "Delete a key; exit with 1 if there is none", Args: cobra.ExactArgs(1), Example: "  holdfast kv delete config/colour"}
	f := c.Flags()
	f.Uint64Var(&ch.revision, "if-revision", 0, "only if its last change was at this revision; exit with 1 if not")
	del := a.asking(func(ctx context.Context, s *holdfast.Space, args []string) error {
		if ch.revision != 0 {
			rev, err := s.KV().CompareAndDelete(ctx, args[0], holdfast.Revision(ch.revision))
			return a.printRevision(args[0], rev, err)
		}
		deleted, err := s.KV().Delete(ctx, args[0])
		if err != nil {
			return err
		}
		if !deleted {
			return &failure{code: exitNo, err: fmt.Errorf("delete %q: there is no such key", args[0]), hint: "holdfast kv ls tells which there are"}
		}
		return a.print().value(map[string]any{"key": args[0], "deleted": true}, "deleted %s", args[0])
	})
	c.RunE = func(c *cobra.Command, args []string) error {
		return orUsage(ch.check(f.Changed("if-revision")), del, c, args)
	}
	return c
}

var orders = map[string]holdfast.Order{
	"key": holdfast.ByKey, "version": holdfast.ByVersion, "created": holdfast.ByCreated, "modified": holdfast.ByModified, "value": holdfast.ByValue,
}

func (a *app) kvList() *cobra.Command {
	var (
		limit int
		sort  string
		desc  bool
		bare  bool
	)
	c := &cobra.Command{Use: "ls [PREFIX]", Short: "List keys that begin with PREFIX", Args: cobra.MaximumNArgs(1),
		Example: "  holdfast kv ls config/\n  holdfast kv ls --sort modified --desc --limit 10"}
	f := c.Flags()
	f.IntVar(&limit, "limit", 0, "at most so many (default: all)")
	f.StringVar(&sort, "sort", "key", "order: key, version, created, modified or value")
	f.BoolVar(&desc, "desc", false, "turn the order round")
	f.BoolVar(&bare, "keys-only", false, "leave the values out")
	list := a.listing(func(p *patience, s *holdfast.Space, args []string) error {
		opts := []holdfast.RangeOption{orders[sort]}
		if desc {
			opts = append(opts, holdfast.Descending())
		}
		if bare {
			opts = append(opts, holdfast.KeysOnly())
		}
		page, err := allPages(p, s.KV(), strings.Join(args, ""), limit, opts)
		if err != nil {
			return err
		}
		return a.printPage(page)
	})
	c.RunE = func(c *cobra.Command, args []string) error { return orUsage(checkOrder(sort), list, c, args) }
	return c
}

// allPages reads as many pages as there are, up to the limit, as one that has the
// revision of the last.
func allPages(p *patience, kv *holdfast.KV, prefix string, limit int, opts []holdfast.RangeOption) (whole holdfast.Page, err error) {
	for more := true; more; more = whole.Next != "" && (limit == 0 || len(whole.Entries) < limit) {
		n := holdfast.MaxKeys(max(limit-len(whole.Entries), min(limit, 0)))
		page, err := kv.Page(p, prefix, append(slices.Clone(opts), n, holdfast.AfterKey(whole.Next))...)
		if err != nil {
			return whole, err
		}
		p.came()
		page.Entries = append(whole.Entries, page.Entries...)
		whole = page
	}
	whole.Count = int64(len(whole.Entries))
	return whole, nil
}

func checkOrder(sort string) error {
	if _, ok := orders[sort]; ok {
		return nil
	}
	return usagef("orders are "+strings.Join(slices.Sorted(maps.Keys(orders)), ", "), "--sort %s is no order", sort)
}

// pageJSON is a list of keys for programs.
type pageJSON struct {
	Keys     []entryJSON       `json:"keys"`
	Count    int64             `json:"count"`
	More     bool              `json:"more"`
	Revision holdfast.Revision `json:"revision"`
}

func (a *app) printPage(page holdfast.Page) error {
	j := pageJSON{Keys: []entryJSON{}, Count: page.Count, More: page.More, Revision: page.Revision}
	var rows [][]string
	for _, e := range page.Entries {
		j.Keys = append(j.Keys, entryOf(e))
		rows = append(rows, []string{e.Key, shown(e.Value), strconv.FormatUint(uint64(e.Modified), 10), strconv.FormatUint(e.Version, 10), span(e.ExpiresIn)})
	}
	return a.print().table(j, []string{"KEY", "VALUE", "REVISION", "VERSION", "EXPIRES IN"}, rows)
}

// plain is a text that another program has chosen, in one line and harmless to a terminal.
func plain(text string) string {
	if utf8.ValidString(text) && !strings.ContainsFunc(text, func(c rune) bool { return !strconv.IsPrint(c) }) {
		return text
	}
	q := strconv.Quote(text)
	return q[1 : len(q)-1]
}

// shown is a value in a table: short, in one line, and harmless to a terminal.
func shown(value []byte) string {
	const most = 60
	q := strconv.Quote(string(value))
	q = q[1 : len(q)-1]
	if len(q) > most {
		return strings.ToValidUTF8(q[:most], "") + "…"
	}
	return q
}
