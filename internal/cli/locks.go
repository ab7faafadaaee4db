package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast"
)

// taker is how a command acquires what its names mean.
type taker = func(ctx context.Context, s *holdfast.Space, names []string, try bool) (*holdfast.Hold, error)

// takeAll makes a taker of what one name means.
func takeAll(want func(s *holdfast.Space, name string) holdfast.Want) taker {
	return func(ctx context.Context, s *holdfast.Space, names []string, try bool) (*holdfast.Hold, error) {
		var wants []holdfast.Want
		for _, n := range names {
			wants = append(wants, want(s, n))
		}
		return acquireAll(ctx, s, wants, try)
	}
}

func acquireAll(ctx context.Context, s *holdfast.Space, wants []holdfast.Want, try bool) (*holdfast.Hold, error) {
	if try {
		return s.TryAcquireAll(ctx, wants...)
	}
	return s.AcquireAll(ctx, wants...)
}

func aMutex(s *holdfast.Space, name string) holdfast.Want  { return s.Mutex(name).Want() }
func aReader(s *holdfast.Space, name string) holdfast.Want { return s.RWMutex(name).Reader().Want() }
func aWriter(s *holdfast.Space, name string) holdfast.Want { return s.RWMutex(name).Writer().Want() }

const aboutHolding = `

The command runs without a shell, in a process group of its own, with this
program's input, output and terminal. Signals are passed on to it, and its exit
code is passed back. It finds HOLDFAST_LOCK (the names, one a line),
HOLDFAST_TOKEN (the fencing token), HOLDFAST_TOKENS (JSON, token by name) and
HOLDFAST_URL in its environment.

If the hold is lost, the command gets SIGTERM and, before anybody else can hold
the name, SIGKILL; the exit code is 76 then. If holdfast is killed, so is the
command.`

func (a *app) lockCommand() *cobra.Command {
	return a.newHolding(&cobra.Command{
		Use:   "lock NAME… -- COMMAND…",
		Short: "Run a command while holding locks",
		Long:  "Run a command while nobody else holds any of the names as a lock. Several names\nare taken together or not at all." + aboutHolding,
		Example: `  holdfast lock nightly -- ./backup.sh
  holdfast lock --try nightly -- ./backup.sh || echo "somebody else does it"
  holdfast lock --wait 30s accounts/7 accounts/9 -- ./transfer.sh`,
	}, takeAll(aMutex))
}

func (a *app) rlockCommand() *cobra.Command {
	return a.newHolding(&cobra.Command{
		Use:     "rlock NAME… -- COMMAND…",
		Short:   "Run a command while reading: together with other readers",
		Long:    "Run a command while holding the names as a reader: together with other readers,\nand while nobody writes." + aboutHolding,
		Example: "  holdfast rlock config -- ./report.sh",
	}, takeAll(aReader))
}

func (a *app) wlockCommand() *cobra.Command {
	return a.newHolding(&cobra.Command{
		Use:     "wlock NAME… -- COMMAND…",
		Short:   "Run a command while writing: alone",
		Long:    "Run a command while holding the names as the writer: alone." + aboutHolding,
		Example: "  holdfast wlock config -- ./edit.sh",
	}, takeAll(aWriter))
}

func (a *app) semCommand() *cobra.Command {
	var limit, weight int64
	c := a.newHolding(&cobra.Command{
		Use:   "sem NAME… -- COMMAND…",
		Short: "Run a command while holding a share of a semaphore",
		Long:  "Run a command while holding a part of each semaphore's limit. The first use with\na limit makes a semaphore; later ones may leave it out." + aboutHolding,
		Example: `  holdfast sem --limit 3 gpu -- ./train.sh
  holdfast sem --limit 40 --weight 8 memory -- ./sort.sh`,
	}, func(ctx context.Context, s *holdfast.Space, names []string, try bool) (*holdfast.Hold, error) {
		return takeAll(aShare(limit, weight))(ctx, s, names, try)
	})
	c.Flags().Int64Var(&limit, "limit", 0, "how much can be held together (default: what it has)")
	c.Flags().Int64Var(&weight, "weight", 1, "how much of it the command takes")
	return c
}

func (a *app) electCommand() *cobra.Command {
	var value string
	c := a.newHolding(&cobra.Command{
		Use:   "elect NAME -- COMMAND…",
		Short: "Run a command while being the leader",
		Long:  "Wait until elected, and run a command while leading. The value is what the leader\nis known by, such as its address; holdfast show tells it." + aboutHolding,
		Example: `  holdfast elect scheduler --value 10.0.0.7:80 -- ./scheduler
  holdfast show scheduler`,
	}, func(ctx context.Context, s *holdfast.Space, names []string, try bool) (*holdfast.Hold, error) {
		return campaign(ctx, s.Election(names[0]), value, try)
	})
	split := c.Args
	c.Args = func(c *cobra.Command, args []string) error {
		if c.ArgsLenAtDash() > 1 {
			return errors.New("an election has one name")
		}
		return split(c, args)
	}
	c.Flags().StringVar(&value, "value", "", "what the leader is known by")
	return c
}

func campaign(ctx context.Context, e *holdfast.Election, value string, try bool) (*holdfast.Hold, error) {
	run := e.Campaign
	if try {
		run = e.TryCampaign
	}
	l, err := run(ctx, []byte(value))
	if err != nil {
		return nil, err
	}
	return l.Hold, nil
}
