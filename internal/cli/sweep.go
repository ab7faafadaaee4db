package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/driver"
)

func (a *app) sweepCommand() *cobra.Command {
	r := &driver.SweepRequest{}
	cmd := &cobra.Command{Use: "sweep [URL]", Short: "Remove what idle names have left in a backend", Args: cobra.MaximumNArgs(1),
		Long: `Remove what names that nobody holds or awaits have left in the backend: lock files,
messages, rows. It runs beside other work, and nobody notices: counters, sequences,
keys, latches and limits stay, and tokens go on growing. With --limits idle
semaphores and barriers are deleted too, and their next user sets the limit anew.`,
		Example: "  holdfast sweep nats://localhost\n  holdfast sweep --prefix jobs/ file:///var/lock/app"}
	f := cmd.Flags()
	f.StringVar(&r.Prefix, "prefix", "", "only names that begin with it")
	f.BoolVar(&r.Limits, "limits", false, "delete idle semaphores and barriers too")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if len(args) == 1 {
			a.url = args[0]
		}
		return untilSignal(func(ctx context.Context) error { return a.sweep(ctx, r) })
	}
	return cmd
}

// sweep has no time-out but for opening: how long it takes is a matter of how much
// there is.
func (a *app) sweep(ctx context.Context, r *driver.SweepRequest) error {
	where, err := a.backend()
	if err != nil {
		return err
	}
	opening, cancel := context.WithTimeoutCause(ctx, a.timeout, errTimeout)
	defer cancel()
	d, err := driver.Open(opening, where)
	if err != nil {
		return unopened(err)
	}
	reply, err := sweepable(d, func() (driver.SweepReply, error) { return d.Sweep(ctx, r) })
	if err := errors.Join(err, d.Close(context.WithoutCancel(ctx))); err != nil {
		return fmt.Errorf("sweep: %w; %d idle names were removed", err, reply.Removed)
	}
	return a.print().value(map[string]int64{"removed": reply.Removed}, "%d idle names removed", reply.Removed)
}

// sweepable runs sweep on a backend that can.
func sweepable(d driver.Driver, sweep func() (driver.SweepReply, error)) (driver.SweepReply, error) {
	if info := d.Info(); !info.Features[driver.FeatureSweep] {
		return driver.SweepReply{}, fmt.Errorf("the %s backend has no %q: %w", info.Scheme, driver.FeatureSweep, errors.ErrUnsupported)
	}
	return sweep()
}
