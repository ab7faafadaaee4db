package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/holdfast-io/holdfast/internal/node/address"
	"github.com/holdfast-io/holdfast/internal/node/disk"
	"github.com/holdfast-io/holdfast/internal/node/storage"
	"github.com/holdfast-io/holdfast/internal/wire"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
	"github.com/holdfast-io/holdfast/server"
)

func (a *app) snapshotCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "snapshot", Short: "Save, check and restore all that a server knows", Args: subcommand,
		Example: "  holdfast snapshot save backup.snap\n  holdfast snapshot verify backup.snap\n  holdfast snapshot restore backup.snap --data /var/lib/holdfast-new",
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		&cobra.Command{Use: "save FILE", Short: "Save a backup of a running server to a new file", Args: cobra.ExactArgs(1), Example: "  holdfast snapshot save backup.snap", RunE: a.saving()},
		&cobra.Command{Use: "verify PATH", Short: "Check a backup, or the directory of a node that is stopped", Args: cobra.ExactArgs(1), Example: "  holdfast snapshot verify backup.snap",
			RunE: func(_ *cobra.Command, args []string) error { return a.verifySnapshot(args[0]) }},
		a.restoreCommand(),
	)
	return cmd
}

// saving runs saveSnapshot with a timeout that begins anew with everything that comes.
func (a *app) saving() func(*cobra.Command, []string) error {
	return func(_ *cobra.Command, args []string) error {
		switch args[0] {
		case "":
			return usagef("name a new file", "the name of the file is empty")
		case "-":
			return usagef("name a file: one that was cut off never bears its name, and standard output could not tell", "a backup is not written to standard output")
		}
		return untilSignal(func(ctx context.Context) error {
			p, cancel := a.patience(ctx)
			defer cancel()
			return unanswered(a.onNodes(p, p.left, always, func(c *grpc.ClientConn) error {
				p.came()
				return a.saveSnapshot(p, pb.NewAdminServiceClient(c), args[0])
			}))
		})
	}
}

// saveSnapshot writes to a file beside the one asked for, so that a backup that
// was cut off never bears its name.
func (a *app) saveSnapshot(p *patience, c pb.AdminServiceClient, path string) error {
	if _, err := os.Lstat(path); err == nil {
		return exists(path)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".holdfast-snapshot-*")
	if err != nil {
		return &failure{code: exitFailed, err: err, hint: "name a file in a directory that is there and can be written"}
	}
	defer os.Remove(f.Name())
	n, err := fetch(p, c, f)
	if err := errors.Join(err, unsaved(errors.Join(f.Sync(), f.Close()))); err != nil {
		return err
	}
	if err := rename(f.Name(), path); err != nil {
		return err
	}
	return a.print().value(map[string]any{"file": path, "bytes": n}, "%s: %d bytes", path, n)
}

// unsaved is what went wrong on the disk of the backup: no node is to blame, and none is asked again.
func unsaved(err error) error {
	if err == nil {
		return nil
	}
	return &failure{code: exitFailed, err: fmt.Errorf("save the backup: %w", err), hint: "free some space there, or name a file elsewhere; nothing was left of this one"}
}

func exists(path string) error { return usagef("name a new file", "%s exists", path) }

// rename gives a file a name that nothing has, for good.
func rename(file, name string) error {
	reserved, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return exists(name) // another was faster
	}
	if err != nil {
		return unsaved(err)
	}
	if err := errors.Join(reserved.Close(), os.Rename(file, name)); err != nil {
		return unsaved(errors.Join(err, os.Remove(name)))
	}
	return storage.OS{}.SyncDir(filepath.Dir(name))
}

func fetch(p *patience, c pb.AdminServiceClient, w io.Writer) (n int64, err error) {
	pieces, err := c.Backup(p, &pb.BackupRequest{})
	for err == nil {
		var m *pb.BackupResponse
		if m, err = pieces.Recv(); err == nil {
			p.came()
			n += int64(len(m.GetPiece()))
			if _, err := w.Write(m.GetPiece()); err != nil {
				return n, unsaved(err)
			}
		}
	}
	if errors.Is(err, io.EOF) {
		return n, nil
	}
	return n, wire.Error(err)
}

// readable refuses what is neither a file nor a directory, before it is opened: a named pipe keeps
// its reader waiting until another program writes.
func readable(path string, info os.FileInfo) error {
	if info.IsDir() || info.Mode().IsRegular() {
		return nil
	}
	return usagef("name a backup file or a node's directory: save what comes from a pipe to a file first", "%s is neither a file nor a directory", path)
}

func (a *app) verifySnapshot(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return &failure{code: exitFailed, err: err, hint: "name a backup file or a node's directory"}
	}
	if err := readable(path, info); err != nil {
		return err
	}
	if info.IsDir() {
		return a.verifyDir(path)
	}
	r, err := storage.OpenBackup(storage.OS{}, path)
	if err != nil {
		return &failure{code: exitNo, err: err}
	}
	defer r.Close()
	if _, err := io.Copy(io.Discard, r); err != nil {
		return &failure{code: exitNo, err: err}
	}
	from, err := disk.Examine(storage.OS{}, path, false)
	if err != nil {
		return &failure{code: exitNo, err: err, hint: "its bytes are whole, but it cannot be restored by this version: try the one that saved it"}
	}
	m := r.Meta()
	return a.print().value(map[string]any{"file": path, "bytes": info.Size(), "index": m.Index, "term": m.Term, "revision": from.Revision},
		"%s is whole: %d bytes, up to log entry %d, revision %d", path, info.Size(), m.Index, from.Revision)
}

func (a *app) verifyDir(dir string) error {
	r, err := storage.Verify(storage.OS{}, dir)
	if err != nil {
		return &failure{code: exitFailed, err: err}
	}
	for _, f := range r.Findings {
		a.print().note(f.String())
	}
	if r.Damaged() {
		return &failure{code: exitNo, err: fmt.Errorf("%s is damaged", dir), hint: afterDamage(r.Findings)}
	}
	var from disk.Origin
	if len(r.Snapshots) > 0 { // else it waits to join a group
		if from, err = disk.Examine(storage.OS{}, dir, true); err != nil {
			return &failure{code: exitNo, err: err}
		}
	}
	entries := "no log entries"
	if r.First <= r.Last {
		entries = fmt.Sprintf("log entries %d to %d", r.First, r.Last)
	}
	return a.print().value(map[string]any{"dir": dir, "cluster": digits(r.ClusterID), "node": digits(r.NodeID), "first": r.First, "last": r.Last, "snapshots": len(r.Snapshots), "revision": from.Revision},
		"%s is whole: node %d of cluster %d, %s, snapshots: %d, up to revision %d", dir, r.NodeID, r.ClusterID, entries, len(r.Snapshots), from.Revision)
}

// afterDamage says what to do with a directory that is damaged as the findings tell. Where a restore
// was cut off nothing is left to begin with.
func afterDamage(all []storage.Finding) string {
	if slices.ContainsFunc(all, func(f storage.Finding) bool { return f.Kind == storage.Unfinished }) {
		return "give the command holdfast snapshot restore again, with this directory or another"
	}
	return "replace the node in its group, or begin anew with what is left: holdfast snapshot restore --accept-loss"
}

// boundary reads where a restore ends, a revision or a time; "": nowhere.
func boundary(text string, anew *server.Anew) (err error) {
	if text == "" {
		return nil
	}
	if anew.Until, err = strconv.ParseUint(text, 10, 64); err == nil && anew.Until > 0 {
		return nil
	}
	if anew.UntilTime, err = time.Parse(time.RFC3339, text); err != nil || anew.UntilTime.Unix() <= 0 {
		return &failure{code: exitUsage, err: fmt.Errorf("--until %q is neither a revision (a number from 1 on) nor a time with its zone, such as 2026-11-16T21:30:00Z or 2026-11-16T22:30:00+01:00", text)}
	}
	return nil
}

// restorable refuses what a restore could never do, before anything is read; ofNode: path has to
// be the directory of a node, else a backup.
func restorable(path string, anew *server.Anew, ofNode bool) error {
	info, err := os.Stat(path)
	switch {
	case anew.Wait < 0:
		return usagef("give the time for which nothing is granted, such as 30s, or leave it out", "--wait %s is negative", anew.Wait)
	case anew.Client != "" && anew.Peer == "":
		return usagef("give both addresses, or none: serve tells them later", "--client %s needs --peer", anew.Client)
	case anew.Peer != "" && !address.Findable(anew.Peer), anew.Client != "" && !address.Findable(anew.Client):
		return usagef("name addresses at which the node is found from elsewhere, HOST:PORT", "--peer %q or --client %q is no such address", anew.Peer, anew.Client)
	case address.Same(anew.Peer, anew.Client):
		return usagef("a node has two addresses, one for other nodes and one for clients", "--peer %s and --client %s are one", anew.Peer, anew.Client)
	case err != nil:
		return nil // which is told when it is read
	case !info.IsDir() && !info.Mode().IsRegular():
		return readable(path, info)
	case ofNode && !info.IsDir():
		return usagef("a backup is restored without them", "%s is a file, and --accept-loss, --force-new-cluster and --until are for the directory of a node", path)
	case !ofNode && info.IsDir():
		return usagef("for the last node of a group give --force-new-cluster, for a part of its log --until, for a damaged one --accept-loss", "%s is a directory, not a backup", path)
	}
	return nil
}

// vacant refuses a directory in which no cluster can begin, or which is a part of the one that is
// read: that is not changed.
func vacant(dir, path string) error {
	const hint = "name a new or empty directory"
	info, err := os.Stat(dir)
	switch {
	case dir == "":
		return usagef(hint, "--data names no directory")
	case inside(dir, path):
		return usagef(hint+" elsewhere", "--data %s is in %s, which a restore does not change", dir, path)
	case err == nil && !info.IsDir():
		return usagef(hint, "--data %s is not a directory", dir)
	}
	return nil
}

// notRestored tells what was asked for wrongly, as a time before the log or a directory that is not empty, from what failed.
func notRestored(err error) error {
	if errors.Is(err, fs.ErrInvalid) || errors.Is(err, fs.ErrExist) {
		return &failure{code: exitUsage, err: err}
	}
	return &failure{code: exitFailed, err: err}
}

// lastTaken says where what was read of a damaged directory ends. Records that are whole behind a damaged
// one are given up with it: they count on what is lost.
func lastTaken(o *server.Origin) string {
	return fmt.Sprintf("the last that is taken is log entry %d, revision %d: all that was behind it in the directory is left out, whole or not", o.Index, o.Revision)
}

func (a *app) restoreCommand() *cobra.Command {
	var (
		anew              server.Anew
		salvage, survivor bool
		wait              time.Duration
		until             string
	)
	cmd := &cobra.Command{
		Use: "restore PATH --data DIR", Short: "Begin a new cluster of one from a backup, in a new directory", Args: cobra.ExactArgs(1),
		Long: `restore begins a new cluster of one node. PATH is a backup, or with --accept-loss the
directory of a damaged node, or with --force-new-cluster that of the last node of a
group, or with --until that of a node that is stopped, from which everything after
that revision or time is left out. PATH is not changed. All sessions are ended; tokens go on above all that were
ever given. Until every old client knows of its loss only tokens protect: --wait
holds back all grants for so long.`,
		Example: "  holdfast snapshot restore backup.snap --data /var/lib/holdfast-new --wait 30s\n  holdfast serve --data /var/lib/holdfast-new",
		RunE: func(_ *cobra.Command, args []string) error {
			begin := server.Restore
			switch {
			case salvage && survivor, until != "" && (salvage || survivor):
				return &failure{code: exitUsage, err: errors.New("--accept-loss, --force-new-cluster and --until exclude each other")}
			case salvage:
				begin = server.AcceptLoss
			case survivor:
				begin = server.ForceNewCluster
			}
			anew.ID, anew.Wait = 1, wait
			if err := boundary(until, &anew); err != nil {
				return err
			}
			if err := restorable(args[0], &anew, salvage || survivor || until != ""); err != nil {
				return err
			}
			if err := vacant(anew.Dir, args[0]); err != nil {
				return err
			}
			b, err := begin(args[0], anew)
			if err != nil {
				return notRestored(err)
			}
			for _, f := range b.From.Findings {
				a.print().note(f)
			}
			if salvage {
				a.print().note(lastTaken(&b.From))
			}
			result := map[string]any{"dir": anew.Dir, "node": digits(anew.ID), "cluster": digits(b.ClusterID), "from_cluster": digits(b.From.ClusterID), "from_revision": b.From.Revision}
			held := ""
			if wait > 0 {
				result["wait"] = wait.String()
				held = fmt.Sprintf("; for %s from its first start on locks wait and tries fail (holdfast status tells how long still)", wait)
			}
			if !b.From.Date.IsZero() {
				result["from_time"] = b.From.Date
			}
			return a.print().value(result,
				"%s begins cluster %d from revision %d of cluster %d; start it with holdfast serve --data %s --id %d --cluster-id %d, and nodes that join it with that --cluster-id%s", anew.Dir, b.ClusterID, b.From.Revision, b.From.ClusterID, anew.Dir, anew.ID, b.ClusterID, held)
		},
	}
	f := cmd.Flags()
	f.StringVar(&anew.Dir, "data", "", "the new directory; missing or empty")
	f.DurationVar(&wait, "wait", 0, "grant nothing for so long after the start; as long as the longest TTL leaves no client that does not know of its loss")
	f.StringVar(&until, "until", "", "PATH is the directory of a node: its snapshot and log up to and with this revision, or this time (2026-11-16T21:30:00Z)")
	f.StringVar(&anew.Peer, "peer", "", "address for other nodes, if the cluster shall grow (default: told later, by serve --peer)")
	f.StringVar(&anew.Client, "client", "", "address for clients, beside --peer")
	f.BoolVar(&salvage, "accept-loss", false, "PATH is the directory of a damaged node: take what can still be read")
	f.BoolVar(&survivor, "force-new-cluster", false, "PATH is the directory of the last node of a group")
	_ = cmd.MarkFlagRequired("data")
	return cmd
}
