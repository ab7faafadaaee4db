package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

// claimJSON is a holder or waiter for programs.
type claimJSON struct {
	Owner     string         `json:"owner,omitempty"`
	Meta      string         `json:"meta,omitempty"`
	Mode      string         `json:"mode,omitempty"`
	Weight    int64          `json:"weight,omitempty"`
	Token     holdfast.Token `json:"token,omitempty"`
	Session   string         `json:"session,omitempty"`
	Value     *string        `json:"value,omitempty"`
	Base64    []byte         `json:"value_base64,omitempty"`
	For       float64        `json:"for_seconds"`
	ExpiresIn float64        `json:"expires_in_seconds,omitempty"`
	Position  int            `json:"position,omitempty"`
	Revoked   bool           `json:"revoked,omitempty"`
	Stale     bool           `json:"stale,omitempty"`
}

func claimOf(c holdfast.Claim) claimJSON {
	j := claimJSON{
		Owner: c.Owner, Meta: c.Meta, Mode: modeOf(c.Mode), Weight: c.Weight, Token: c.Token, For: c.Held.Seconds(),
		ExpiresIn: c.ExpiresIn.Seconds(), Position: c.Position, Revoked: c.Revoked, Stale: c.Stale,
	}
	if c.Session != (holdfast.SessionID{}) {
		j.Session = c.Session.String()
	}
	if c.Kind == driver.Election {
		j.Value, j.Base64 = textOrBytes(c.Value)
	}
	return j
}

func modeOf(m driver.Mode) string {
	if m == driver.Shared {
		return "shared"
	}
	return "exclusive"
}

// resourceJSON is a name for programs.
type resourceJSON struct {
	Name    string      `json:"name"`
	Kind    string      `json:"kind,omitempty"`
	Limit   int64       `json:"limit,omitempty"`
	Used    int64       `json:"used,omitempty"`
	Holding int         `json:"holding"`
	Waiting int         `json:"waiting"`
	Holders []claimJSON `json:"holders"`
	Waiters []claimJSON `json:"waiters"`
	More    bool        `json:"more,omitempty"` // holders and waiters are not all
}

func resourceOf(r holdfast.Resource) resourceJSON {
	return resourceJSON{
		Name: r.Name, Kind: r.Kind.String(), Limit: r.Limit, Used: r.Used, Holding: r.Holding, Waiting: r.Waiting,
		Holders: claimsOf(r.Holders), Waiters: claimsOf(r.Waiters), More: r.More,
	}
}

func claimsOf(claims []holdfast.Claim) []claimJSON {
	all := []claimJSON{}
	for _, c := range claims {
		all = append(all, claimOf(c))
	}
	return all
}

func (a *app) lsCommand() *cobra.Command {
	return &cobra.Command{Use: "ls [PREFIX]", Short: "List the names that are held, awaited or kept", Args: cobra.MaximumNArgs(1), Example: "  holdfast ls\n  holdfast ls jobs/",
		RunE: a.listing(func(p *patience, s *holdfast.Space, args []string) error {
			all := []resourceJSON{}
			var rows [][]string
			for r, err := range s.List(p, strings.Join(args, "")) {
				if err != nil {
					return err
				}
				p.came()
				all = append(all, resourceOf(r))
				rows = append(rows, row(r))
			}
			return a.print().table(all, []string{"NAME", "KIND", "HELD BY", "TOKEN", "FOR", "WAITING", "USED"}, rows)
		})}
}

// row is a name in the list: its first holder, and how many more.
func row(r holdfast.Resource) []string {
	owner, token, held := "-", "-", "-"
	if len(r.Holders) > 0 {
		h := r.Holders[0]
		owner, token, held = dash(plain(h.Owner)), strconv.FormatUint(uint64(h.Token), 10), span(h.Held)
		if h.Stale {
			owner += " (stale)"
		}
	}
	if n := r.Holding - 1; n > 0 {
		owner += fmt.Sprintf(" and %d more", n)
	}
	used := "-"
	if r.Limit > 0 {
		used = fmt.Sprintf("%d/%d", r.Used, r.Limit)
	}
	return []string{r.Name, dash(r.Kind.String()), owner, token, held, strconv.Itoa(r.Waiting), used}
}

func (a *app) showCommand() *cobra.Command {
	return &cobra.Command{Use: "show NAME", Short: "Tell the holders of a name and its waiters", Args: cobra.ExactArgs(1), Example: "  holdfast show nightly",
		RunE: a.asking(func(ctx context.Context, s *holdfast.Space, args []string) error {
			r, err := s.Inspect(ctx, args[0])
			if err != nil {
				return err
			}
			if len(r.Holders)+len(r.Waiters) == 0 {
				return a.print().value(resourceOf(r), "%s is free", args[0])
			}
			return a.print().table(resourceOf(r), []string{"PLACE", "OWNER", "MODE", "WEIGHT", "TOKEN", "FOR", "EXPIRES IN", "VALUE", "META"}, claimRows(r))
		})}
}

func claimRows(r holdfast.Resource) [][]string {
	var rows [][]string
	for _, c := range r.Holders {
		rows = append(rows, claimRow("holds", strconv.FormatUint(uint64(c.Token), 10), c))
	}
	for _, c := range r.Waiters {
		rows = append(rows, claimRow(strconv.Itoa(c.Position), "-", c))
	}
	return rows
}

func claimRow(place, token string, c holdfast.Claim) []string {
	expires := span(c.ExpiresIn)
	if c.Stale {
		expires = "stale"
	}
	return []string{place, dash(plain(c.Owner)), modeOf(c.Mode), strconv.FormatInt(max(c.Weight, 1), 10), token, span(c.Held), expires, dash(shown(c.Value)), dash(shown([]byte(c.Meta)))}
}

func (a *app) releaseCommand() *cobra.Command {
	var (
		force, now bool
		token      uint64
	)
	c := &cobra.Command{Use: "release --force NAME", Short: "End another's hold", Args: cobra.ExactArgs(1),
		Long: `End another's hold. A command under holdfast lock gives back by itself when it
ends; this is for holders that do not. The holder is told first, and the name is
free as soon as it has given it back or its time has passed; with --now it is free
at once, and only fencing tokens keep the old holder out.

Without --token the one hold that there is now is ended.`,
		Example: "  holdfast release --force nightly\n  holdfast release --force --token 4711 nightly"}
	f := c.Flags()
	f.BoolVar(&force, "force", false, "really end another's hold")
	f.BoolVar(&now, "now", false, "do not wait until the holder knows")
	f.Uint64Var(&token, "token", 0, "which hold (default: the only one)")
	end := a.asking(func(ctx context.Context, s *holdfast.Space, args []string) error {
		if token == 0 {
			var err error
			if token, err = onlyHolder(ctx, s, args[0]); err != nil {
				return err
			}
		}
		var opts []holdfast.ForceOption
		if now {
			opts = append(opts, holdfast.ForceNow())
		}
		until, err := s.ForceRelease(ctx, args[0], holdfast.Token(token), opts...)
		return a.printForced(args[0], token, until, err)
	})
	c.RunE = func(c *cobra.Command, args []string) error {
		if !force {
			return usagef("holds end by themselves with their command; to end another's, add --force", "release %q: it is another's hold", args[0])
		}
		return end(c, args)
	}
	return c
}

// onlyHolder is the token of the one holder.
func onlyHolder(ctx context.Context, s *holdfast.Space, name string) (uint64, error) {
	r, err := s.Inspect(ctx, name)
	if err != nil {
		return 0, err
	}
	switch len(r.Holders) {
	case 0:
		return 0, &failure{code: exitNo, err: fmt.Errorf("release %q: nobody holds it", name), hint: "holdfast ls tells what is held"}
	case 1:
		return uint64(r.Holders[0].Token), nil
	}
	return 0, usagef("holdfast show "+argument(name)+" tells the tokens; choose one with --token", "release %q: %d hold it", name, len(r.Holders))
}

func (a *app) printForced(name string, token uint64, until time.Duration, err error) error {
	if err != nil {
		return err
	}
	text := "free"
	if until > 0 {
		text = "free in at most " + span(until)
	}
	return a.print().value(map[string]any{"name": name, "token": token, "free_in_seconds": until.Seconds()}, "%s: the hold with token %d is ended; %s", name, token, text)
}
