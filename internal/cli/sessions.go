package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/metadata"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/hostlist"
	"github.com/holdfast-io/holdfast/internal/wire"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

func (a *app) sessionListCommand() *cobra.Command {
	return &cobra.Command{
		Use: "ls [PREFIX]", Short: "List the sessions that hold, wait for or keep something", Args: cobra.MaximumNArgs(1),
		Long: `List the sessions that hold or wait for names, or keep keys; with a prefix, those of
names and keys that begin with it. A session that has nothing is not listed. Of many names the
first few are told, with --json all.`,
		Example: "  holdfast session ls\n  holdfast session ls services/",
		RunE: func(_ *cobra.Command, args []string) error {
			return untilSignal(func(ctx context.Context) error { return unanswered(a.listSessions(ctx, strings.Join(args, ""))) })
		},
	}
}

func (a *app) listSessions(ctx context.Context, prefix string) error {
	p, cancel := a.patience(ctx)
	defer cancel()
	d, err := a.openDriver(p)
	if err != nil {
		return err
	}
	s, err := holdfast.New(d)
	if err != nil {
		return errors.Join(err, d.Close(p))
	}
	defer s.Close()
	found, err := sessionsOf(p, s, prefix, a.keysUnder(p, p.left, s, prefix), p.came)
	if err != nil {
		return err
	}
	if err := found.describe(p, d); err != nil {
		return err
	}
	return a.printSessions(found)
}

// sessionsOf collects the sessions behind names with a prefix and keys; it calls came with each of them.
func sessionsOf(ctx context.Context, s *holdfast.Space, prefix string, keys iter.Seq2[holdfast.Entry, error], came func()) (sessions, error) {
	found := sessions{}
	for r, err := range s.List(ctx, prefix) {
		if came(); err == nil && r.More {
			r, err = s.Inspect(ctx, r.Name)
		}
		if err != nil {
			return nil, err
		}
		for _, c := range r.Holders {
			j := found.of(c)
			j.Holds = append(j.Holds, r.Name)
		}
		for _, c := range r.Waiters {
			j := found.of(c)
			j.Waits = append(j.Waits, r.Name)
		}
	}
	came() // also if there are no names
	for e, err := range keys {
		if errors.Is(err, errors.ErrUnsupported) {
			break
		}
		if err != nil {
			return nil, err
		}
		came()
		j := found.at(e.Session)
		j.Keys = append(j.Keys, e.Key)
	}
	delete(found, holdfast.SessionID{}) // what hangs on none
	return found, nil
}

type sessions map[holdfast.SessionID]*sessionJSON

func (s sessions) at(id holdfast.SessionID) *sessionJSON {
	if s[id] == nil {
		s[id] = &sessionJSON{ID: id.String()}
	}
	return s[id]
}

// of is the session of a claim, with what the claim tells about it.
func (s sessions) of(c holdfast.Claim) *sessionJSON {
	j := s.at(c.Session)
	j.Owner, j.Meta, j.ExpiresIn = c.Owner, c.Meta, c.ExpiresIn.Seconds()
	return j
}

// describe asks the backend about sessions that only have keys, since a key tells
// nothing about its session but its id, some at a time. One that has ended meanwhile is left out.
func (s sessions) describe(p *patience, d driver.Driver) error {
	bare := slices.Collect(maps.Keys(s))
	bare = slices.DeleteFunc(bare, func(id holdfast.SessionID) bool { return len(s[id].Holds)+len(s[id].Waits) > 0 })
	for some := range slices.Chunk(bare, askedAtOnce) {
		errs := make([]error, len(some))
		var all sync.WaitGroup
		for i, id := range some {
			j := s[id]
			all.Go(func() { errs[i] = j.describe(p, d, id) })
		}
		all.Wait()
		for i, err := range errs {
			switch {
			case errors.Is(err, fs.ErrNotExist) || errors.Is(err, holdfast.ErrLost):
				delete(s, some[i])
			case err != nil:
				return err
			}
		}
	}
	return nil
}

// askedAtOnce bounds the calls under way.
const askedAtOnce = 16

func (j *sessionJSON) describe(p *patience, d driver.Driver, id holdfast.SessionID) error {
	info, err := d.SessionInfo(p, &driver.SessionInfoRequest{ID: id, Max: 1})
	p.came()
	j.Owner, j.Meta, j.TTL, j.ExpiresIn = info.Owner, info.Meta, info.TTL.Seconds(), info.ExpiresIn.Seconds()
	return err
}

func (a *app) printSessions(found sessions) error {
	ids := slices.SortedFunc(maps.Keys(found), func(x, y holdfast.SessionID) int { return bytes.Compare(x[:], y[:]) })
	all := []*sessionJSON{}
	var rows [][]string
	for _, id := range ids {
		j := found[id]
		all = append(all, j)
		rows = append(rows, []string{j.ID, dash(plain(j.Owner)), some(j.Holds), some(j.Waits), some(j.Keys)})
	}
	return a.print().table(all, []string{"SESSION", "OWNER", "HOLDS", "WAITS FOR", "KEYS"}, rows)
}

// shownNames is how many names a row of sessions has in a column, at most: one session with
// many would else make every row as wide.
const shownNames = 5

// some are the first names of a list, and how many more there are.
func some(names []string) string {
	if more := len(names) - shownNames; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:shownNames], " "), more)
	}
	return dash(strings.Join(names, " "))
}

func (a *app) sessionRevokeCommand() *cobra.Command {
	var now bool
	c := &cobra.Command{
		Use: "revoke ID", Short: "End another's session on a Holdfast server", Args: cobra.ExactArgs(1),
		Long: `End another's session, with all that it holds, waits for and keeps. The holder is
told first, and its names are free as soon as it knows or its time has passed; with
--now they are free at once, and only fencing tokens keep the old holder out.`,
		Example: "  holdfast --url holdfast://127.0.0.1:7420 session revoke 5f0c1d7e9a3b4c6d8e0f1a2b3c4d5e6f",
	}
	c.Flags().BoolVar(&now, "now", false, "do not wait until the holder knows")
	revoke := a.administering(func(ctx context.Context, c pb.AdminServiceClient, args []string) error {
		id, _ := parseSession(args[0]) // checked before
		res, err := c.RevokeSession(metadata.AppendToOutgoingContext(ctx, wire.NamespaceMetadata(a.namespace())...), &pb.RevokeSessionRequest{Session: id[:], Now: now})
		if err != nil {
			return err
		}
		return a.printRevoked(args[0], time.Duration(res.GetUntilMs())*time.Millisecond)
	})
	c.RunE = func(c *cobra.Command, args []string) error {
		if _, err := parseSession(args[0]); err != nil {
			return err
		}
		if err := a.revokes(); err != nil {
			return err
		}
		return revoke(c, args)
	}
	return c
}

// revokes: only a Holdfast server ends the sessions of others.
func (a *app) revokes() error {
	where, err := a.backend()
	if err != nil || strings.HasPrefix(where, "holdfast:") || strings.HasPrefix(where, "holdfasts:") {
		return err
	}
	scheme, _, _ := strings.Cut(where, ":")
	return &failure{code: exitFailed, err: driver.Errorf("revoke session", "", errors.ErrUnsupported, "%s: knows no sessions of others that it could end", scheme),
		hint: "holdfast release --force NAME ends a hold, where the backend can; a server is named by --url holdfast://host:port"}
}

// namespace is that of the server's URL.
func (a *app) namespace() string {
	u, err := hostlist.Parse(a.url)
	if err != nil {
		return ""
	}
	return strings.Trim(u.Path, "/")
}

func (a *app) printRevoked(id string, until time.Duration) error {
	text := "what it held is free"
	if until > 0 {
		text = "what it holds is free in at most " + span(until)
	}
	return a.print().value(map[string]any{"id": id, "free_in_seconds": until.Seconds()}, "%s", fmt.Sprintf("session %s is ended; %s", id, text))
}
