package server

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/node/address"
	"github.com/holdfast-io/holdfast/internal/node/disk"
	"github.com/holdfast-io/holdfast/internal/node/replica"
	"github.com/holdfast-io/holdfast/internal/node/storage"
)

// Anew says how a cluster of one begins from an old state, in a directory of its
// own; other nodes can join it. It forgets: all sessions are ended, events of
// before cannot be watched any more, and what the old cluster did after the
// state was saved is lost. Tokens never come again: the revision jumps to the
// Unix time of the first start in units of 2⁻²⁰ s, about a microsecond, or by 2⁴⁰ if it
// is beyond that. So of
// two clusters that begin from one state, or from two in any order, the one that is
// started later has the greater tokens, by the wall clocks of the machines where they start.
type Anew struct {
	// Dir is the new directory; it must be missing or empty.
	Dir string
	// ID is the node's number; default 1.
	ID uint64
	// ClusterID is the new cluster's number, never one that was used before;
	// default: drawn at random.
	ClusterID uint64
	// Peer and Client are the node's addresses, for other nodes and for clients.
	Peer, Client string
	// Wait is how long nothing is granted after the start; default 0, not at all;
	// negative is ErrInvalid.
	//
	// Danger: without it a client that does not know yet of its loss may still
	// act while another is granted what it held, and only the token tells the
	// two apart. A wait as long as the longest TTL leaves no such client.
	Wait time.Duration
	// Until is the last revision of the old state that counts, for Restore from the
	// directory of a node; 0: all of it does.
	Until uint64
	// UntilTime is the same by the wall clocks of the leaders of then, to the second;
	// zero: all of it counts. What was written in a group before version 3 tells no time.
	UntilTime time.Time
}

// Began is what came of it.
type Began struct {
	// ClusterID is the new cluster's number: [Config.ClusterID] of every node.
	ClusterID uint64
	// From is what the cluster began from.
	From Origin
}

// Origin is the state that a cluster began from.
type Origin struct {
	// ClusterID is that of the cluster before.
	ClusterID uint64
	// Index is the last log entry that went into the state, Revision what the state had then.
	Index, Revision uint64
	// Date is when the last command came that tells it; zero: none does.
	Date time.Time
	// Findings are what is wrong with the directory of a node that it began from, in words.
	Findings []string
}

func origin(o disk.Origin) Origin {
	from := Origin{ClusterID: o.ClusterID, Index: o.Index, Revision: o.Revision}
	if o.Date > 0 {
		from.Date = time.Unix(o.Date, 0).UTC()
	}
	for _, f := range o.Findings {
		from.Findings = append(from.Findings, f.String())
	}
	return from
}

// Restore begins a cluster from a backup that [Server.Backup] wrote to a file. A
// copy of a node's newest snap- file serves too. With [Anew.Until] or
// [Anew.UntilTime] it is the directory of a node, which is not changed and which no process
// may use: a snapshot of it and its log up to that revision or time, as the way past what was
// done by mistake, or past an entry that cannot be applied.
func Restore(backup string, a Anew) (Began, error) {
	if a.Until > 0 || !a.UntilTime.IsZero() {
		return a.begin("restore", a.salvaging(disk.RestoreUntil, backup))
	}
	return a.begin("restore", func(s disk.Start) (disk.Origin, error) { return disk.Restore(storage.OS{}, backup, s) })
}

// AcceptLoss begins a cluster from what can still be read of the damaged
// directory old, up to the first damage. old is not changed, and no process may
// use it. If the other nodes of the cluster are well, replace the node instead.
func AcceptLoss(old string, a Anew) (Began, error) {
	return a.begin("accept the loss", a.salvaging(acceptLoss, old))
}

// acceptLoss does not say to accept the loss where nothing can be read: that was asked for.
func acceptLoss(fsys storage.FS, old string, s disk.Start) (disk.Origin, error) {
	o, err := disk.AcceptLoss(fsys, old, s)
	e, ok := errors.AsType[*storage.Error](err)
	if !ok || !errors.Is(err, storage.ErrDamaged) || errors.Is(err, storage.ErrUnfinished) {
		return o, err
	}
	again := *e
	again.Advice = "nothing of it can be read: restore a backup, or in a group let the node join again on an empty directory; nothing was changed"
	return o, &again
}

// ForceNewCluster makes the last node of a cluster, which cannot decide without
// the others, a cluster of one; old is its directory, which is not changed and
// which no process may use. Whatever the others knew and this node did not is
// lost.
//
// Danger: should the others still run, there are two clusters from then on that
// both grant. Only fencing tells them apart, and only while the old one makes
// fewer than 2²⁰ changes a second.
func ForceNewCluster(old string, a Anew) (Began, error) {
	return a.begin("force a new cluster", a.salvaging(disk.ForceNewCluster, old))
}

// salvaging begins from the directory of a node.
func (a Anew) salvaging(from func(storage.FS, string, disk.Start) (disk.Origin, error), old string) func(disk.Start) (disk.Origin, error) {
	return func(s disk.Start) (disk.Origin, error) {
		o, err := from(storage.OS{}, old, s)
		return o, nameless(old, err)
	}
}

// nameless says what is left of a directory without a readable identity, which has what the
// checksums of the log begin with: its snapshots, each of which is a backup.
func nameless(old string, err error) error {
	e, ok := errors.AsType[*storage.Error](err)
	if !ok || !errors.Is(err, storage.ErrDamaged) || filepath.Base(e.File) != "identity" {
		return err
	}
	again := *e
	again.Advice = "without it the log cannot be read, and there is no snapshot: restore a backup; nothing was changed"
	if all, _ := filepath.Glob(filepath.Join(old, "snap-*")); len(all) > 0 {
		again.Advice = fmt.Sprintf("without it the log cannot be read, but a snapshot can, as a backup; what came after it is lost, unless another node has it: holdfast snapshot restore %s --data NEW; nothing was changed", slices.Max(all))
	}
	return &again
}

func (a Anew) begin(op string, from func(disk.Start) (disk.Origin, error)) (Began, error) {
	switch {
	case a.Dir == "" || a.Wait < 0:
		return Began{}, driver.Errorf(op, a.Dir, fs.ErrInvalid, "Anew.Dir must name a new directory, and Anew.Wait (%s) must not be negative", a.Wait)
	case a.Peer != "" && !address.Findable(a.Peer), a.Client != "" && !address.Findable(a.Client):
		return Began{}, driver.Errorf(op, a.Dir, fs.ErrInvalid, "Anew.Peer (--peer) %q and Anew.Client (--client) %q must be addresses at which the node is found from elsewhere, with a port", a.Peer, a.Client)
	case address.Same(a.Peer, a.Client):
		return Began{}, driver.Errorf(op, a.Dir, fs.ErrInvalid, "Anew.Peer (--peer) %s and Anew.Client (--client) %s are one: a node has two addresses, one for other nodes and one for clients", a.Peer, a.Client)
	case !a.UntilTime.IsZero() && (a.Until > 0 || a.UntilTime.Unix() <= 0):
		return Began{}, driver.Errorf(op, a.Dir, fs.ErrInvalid, "Anew.UntilTime (%s) must be after 1970, and excludes Anew.Until", a.UntilTime)
	}
	s, err := a.start()
	if err != nil {
		return Began{}, &driver.Error{Op: op, Name: a.Dir, Outcome: driver.NotDone, Err: err}
	}
	began, err := from(s)
	if err != nil {
		return Began{}, &driver.Error{Op: op, Name: a.Dir, Outcome: driver.NotDone, Err: err}
	}
	return Began{ClusterID: s.Options.ClusterID, From: origin(began)}, nil
}

func (a *Anew) start() (disk.Start, error) {
	var chance [16]byte
	if _, err := rand.Read(chance[:]); err != nil {
		return disk.Start{}, err
	}
	o := storage.Options{ClusterID: a.ClusterID, NodeID: max(a.ID, 1), Salt: binary.LittleEndian.Uint64(chance[:])}
	if o.ClusterID == 0 {
		o.ClusterID = max(binary.LittleEndian.Uint64(chance[8:]), 2)
	}
	self := replica.Endpoint{ID: o.NodeID, Peer: a.Peer, Client: a.Client}
	s := disk.Start{Dir: a.Dir, Options: o, Self: self, Clock: time.Now(), Wait: a.Wait, Until: a.Until}
	if !a.UntilTime.IsZero() {
		s.UntilDate = a.UntilTime.Unix()
	}
	return s, nil
}
