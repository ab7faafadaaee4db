package cli

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

func (a *app) sessionCommand() *cobra.Command {
	c := &cobra.Command{Use: "session", Short: "Keep keys for as long as a command or a session lives; look at sessions", Args: subcommand,
		Example: `  holdfast session run --put services/web/7=10.0.0.7:80 -- ./web
  holdfast session keep --put maintenance=yes
  holdfast session ls`,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	c.AddCommand(a.sessionRunCommand(), a.sessionKeepCommand(), a.sessionListCommand(), a.sessionShowCommand(), a.sessionRevokeCommand())
	return c
}

func (a *app) sessionRunCommand() *cobra.Command {
	h := &holding{a: a}
	var puts []string
	c := &cobra.Command{
		Use:   "run [--put KEY=VALUE]… -- COMMAND…",
		Short: "Run a command with keys that live as long as it does",
		Long: `Open a session, put keys under it, and run a command. The keys are gone when the
command has ended, or when this machine has. The command finds HOLDFAST_SESSION
(the session's id) and HOLDFAST_URL in its environment.`,
		Example: "  holdfast session run --put services/web/7=10.0.0.7:80 -- ./web",
		Args:    func(c *cobra.Command, args []string) error { return checkSplit(c, args, 0) },
	}
	f := c.Flags()
	h.sessionFlags(f, &puts)
	h.graceFlag(f)
	c.RunE = func(c *cobra.Command, args []string) error {
		if c.ArgsLenAtDash() > 0 {
			return usagef("keys are put with --put KEY=VALUE", "a session has no name: %q", args[0])
		}
		keys, err := parsePuts(puts)
		if err != nil {
			return err
		}
		return h.runInSession(f, keys, args)
	}
	return c
}

func (h *holding) sessionFlags(f *pflag.FlagSet, puts *[]string) {
	f.StringArrayVar(puts, "put", nil, "put this key under the session")
	f.DurationVar(&h.ttl, "ttl", 0, "how long the session outlives the last sign of life (default 30s; files need none)")
	f.StringVar(&h.owner, "owner", "", "the session's owner, for people (default: host/process/command)")
	f.StringVar(&h.meta, "meta", "", "text that is shown with the session")
}

func (a *app) sessionKeepCommand() *cobra.Command {
	h := &holding{a: a}
	var puts []string
	c := &cobra.Command{
		Use:   "keep [--put KEY=VALUE]…",
		Short: "Keep a session and its keys until it is told to stop",
		Long: `Open a session, put keys under it, print its id, and keep it alive until ^C, SIGTERM
or SIGHUP; then the session ends and its keys are gone. If it ends otherwise, because
another revoked it or it could not be renewed in time, the exit code is 76.`,
		Example: `  holdfast session keep --put services/web/7=10.0.0.7:80
  holdfast session keep --put maintenance=yes & keeper=$!; ./upgrade.sh; kill $keeper`,
		Args: cobra.NoArgs,
	}
	f := c.Flags()
	h.sessionFlags(f, &puts)
	c.RunE = func(*cobra.Command, []string) error {
		keys, err := parsePuts(puts)
		if err != nil {
			return err
		}
		return h.keepSession(f, keys)
	}
	return c
}

// keepSession keeps a session until a signal comes, or it is over.
func (h *holding) keepSession(f *pflag.FlagSet, keys [][2]string) error {
	h.a.outliveReaders()
	sigs := catch()
	defer sigs.stop()
	s, err := h.a.openSoon(sigs)
	if err != nil {
		return err
	}
	defer s.Close()
	session, err := h.openSession(sigs, s, f, "holdfast", keys)
	if err != nil {
		return err
	}
	ctx, done := sigs.during(context.Background())
	defer done()
	if err := h.a.print().value(sessionJSON{ID: session.ID().String(), Owner: h.owner, Meta: h.meta}, "%s", session.ID()); err != nil {
		return errors.Join(err, session.Revoke())
	}
	select {
	case <-ctx.Done(): // asked for
		return session.Revoke()
	case <-session.Done():
		return &failure{code: exitLost, err: fmt.Errorf("session %s is over: %w", session.ID(), session.Err()), hint: "keep another; what was put under it is gone"}
	}
}

// parsePuts reads KEY=VALUE; a value may have = in it.
func parsePuts(puts []string) ([][2]string, error) {
	var keys [][2]string
	for _, text := range puts {
		key, value, ok := strings.Cut(text, "=")
		if !ok || key == "" {
			return nil, usagef("write --put KEY=VALUE", "--put %s has no key or no =", text)
		}
		keys = append(keys, [2]string{key, value})
	}
	return keys, nil
}

func (h *holding) runInSession(f *pflag.FlagSet, keys [][2]string, command []string) error {
	if h.grace < 0 {
		return usagef("0 kills at once", "--grace %s is negative", h.grace)
	}
	path, err := find(command[0])
	if err != nil {
		return err
	}
	h.a.outliveReaders()
	sigs := catch()
	defer sigs.stop()
	s, err := h.a.openSoon(sigs)
	if err != nil {
		return err
	}
	defer s.Close()
	session, err := h.openSession(sigs, s, f, path, keys)
	if err != nil {
		return err
	}
	env := []string{"HOLDFAST_SESSION=" + session.ID().String(), "HOLDFAST_URL=" + h.a.url}
	status, err := h.child(path, command, sigs, env).Run(session)
	return h.outcome(status, err, session.Revoke())
}

// openSession opens it and puts the keys, or leaves nothing behind.
func (h *holding) openSession(sigs *signals, s *holdfast.Space, f *pflag.FlagSet, path string, keys [][2]string) (*holdfast.Session, error) {
	ctx, done := sigs.during(context.Background())
	session, err := h.putSession(ctx, s, f, path, keys)
	if asked := done(); asked != nil && err == nil { // a signal that came with the last answer
		return nil, errors.Join(asked, session.Revoke())
	}
	return session, err
}

// putSession is openSession until ctx ends.
func (h *holding) putSession(ctx context.Context, s *holdfast.Space, f *pflag.FlagSet, path string, keys [][2]string) (*holdfast.Session, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, h.a.timeout, errTimeout)
	defer cancel()
	opts := []holdfast.SessionOption{h.ownerOption(path), holdfast.Meta(h.meta)}
	if f.Changed("ttl") {
		opts = append(opts, holdfast.TTL(h.ttl))
	}
	session, err := s.Session(ctx, opts...)
	if err != nil {
		return nil, unanswered(err)
	}
	for _, kv := range keys {
		if _, err := s.KV().Put(ctx, kv[0], []byte(kv[1]), holdfast.Under(session)); err != nil {
			return nil, errors.Join(unanswered(err), session.Revoke())
		}
	}
	return session, nil
}

// sessionJSON is a session for programs.
type sessionJSON struct {
	ID        string   `json:"id"`
	Owner     string   `json:"owner,omitempty"`
	Meta      string   `json:"meta,omitempty"`
	TTL       float64  `json:"ttl_seconds,omitempty"`
	ExpiresIn float64  `json:"expires_in_seconds,omitempty"`
	Holds     []string `json:"holds,omitempty"`
	Waits     []string `json:"waits_for,omitempty"`
	Keys      []string `json:"keys,omitempty"`
}

func (a *app) sessionShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "show ID",
		Short:   "Tell what a session holds, waits for and keeps",
		Example: "  holdfast session show 5f0c1d7e9a3b4c6d8e0f1a2b3c4d5e6f",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			id, err := parseSession(args[0])
			if err != nil {
				return err
			}
			return untilSignal(func(ctx context.Context) error { return a.showSession(ctx, id) })
		},
	}
}

func parseSession(text string) (id holdfast.SessionID, err error) {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != len(id) {
		return id, usagef("holdfast session ls tells which there are", "%q is no session: 32 hexadecimal digits are", text)
	}
	return holdfast.SessionID(b), nil
}

// wholeLease is all that a driver tells of a session.
func wholeLease(p *patience, d driver.Driver, id holdfast.SessionID) (whole driver.SessionInfo, err error) {
	for more := true; more; more = whole.Next != "" {
		page, err := d.SessionInfo(p, &driver.SessionInfoRequest{ID: id, After: whole.Next})
		if err != nil {
			return whole, err
		}
		p.came()
		page.Names, page.Waits, page.Keys = append(whole.Names, page.Names...), append(whole.Waits, page.Waits...), append(whole.Keys, page.Keys...)
		whole = page
	}
	for _, list := range []*[]string{&whole.Names, &whole.Waits, &whole.Keys} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return whole, nil
}

// showSession asks the driver: sessions of others are not in the library's API.
func (a *app) showSession(ctx context.Context, id holdfast.SessionID) error {
	p, cancel := a.patience(ctx)
	defer cancel()
	d, err := a.openDriver(p)
	if err != nil {
		return err
	}
	d.OnFault(func(string, string, error) {})
	defer d.Close(p)
	info, err := wholeLease(p, d, id)
	if e, ok := errors.AsType[*driver.Error](err); ok {
		named := *e
		named.Op, named.Name = "show session", id.String()
		return unanswered(&named)
	}
	if err != nil {
		return err
	}
	j := sessionJSON{ID: id.String(), Owner: info.Owner, Meta: info.Meta, TTL: info.TTL.Seconds(), ExpiresIn: info.ExpiresIn.Seconds(),
		Holds: info.Names, Waits: info.Waits, Keys: info.Keys}
	return a.print().table(j, []string{"OWNER", "EXPIRES IN", "HOLDS", "WAITS FOR", "KEYS"}, [][]string{{
		dash(plain(info.Owner)), span(info.ExpiresIn), dash(strings.Join(info.Names, " ")), dash(strings.Join(info.Waits, " ")), dash(strings.Join(info.Keys, " "))}})
}
