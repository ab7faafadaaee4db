package server

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/disk"
	"github.com/holdfast-io/holdfast/internal/node/replica"
	"github.com/holdfast-io/holdfast/internal/node/storage"
	"github.com/holdfast-io/holdfast/internal/node/storage/simdisk"
)

// What a node tells its group of its addresses is what --members says, not where it
// listens: at 0.0.0.0 the others would look for it on their own machines.
func TestNodeTellsWhereItIsFound(t *testing.T) {
	d, _, err := disk.Open(simdisk.New(), "data", storage.Options{ClusterID: 1, NodeID: 1, SegmentSize: 64 << 10}, replica.Bootstrap(core.Config{}, []replica.Endpoint{{ID: 1}}))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	member := Member{ID: 1, Peer: "10.0.0.1:7421", Client: "10.0.0.1:7420"}
	for name, c := range map[string]struct {
		cfg          Config
		peer, client string
	}{
		"listens anywhere":     {Config{Listen: "0.0.0.0:7421", Founders: []Member{member}}, member.Peer, member.Client},
		"joins, anywhere":      {Config{ID: 4, Join: true, Listen: "[::]:7421", Client: ":7420", Founders: []Member{member}}, "", ""},
		"alone":                {Config{Listen: "10.0.0.2:7421", Client: "10.0.0.2:7420"}, "10.0.0.2:7421", "10.0.0.2:7420"},
		"alone, without peers": {Config{Client: "10.0.0.2:7420"}, "", "10.0.0.2:7420"},
	} {
		c.cfg.Dir = t.TempDir()
		cfg, err := c.cfg.filled()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := (&Server{cfg: cfg, disk: d}).node(); got.Peer != c.peer || got.Client != c.client {
			t.Errorf("%s: the group is told %q and %q, want %q and %q", name, got.Peer, got.Client, c.peer, c.client)
		}
	}
}

// Addresses at which nobody could find a node are refused wherever they are given.
func TestAddressesOfNobody(t *testing.T) {
	for _, addr := range []string{"0.0.0.0:7421", ":7421", "[::]:7421", "[::ffff:0.0.0.0]:7421", "10.0.0.1", "10.0.0.1:", "fe80::1", "[fe80::1]"} {
		if _, err := (Config{Dir: t.TempDir(), Listen: "10.0.0.1:7421", Founders: []Member{{ID: 1, Peer: "10.0.0.1:7421"}, {ID: 2, Peer: addr}}}).filled(); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("a founder at %s: %v", addr, err)
		}
		for _, a := range []Anew{{Peer: addr}, {Client: addr}} {
			a.Dir = filepath.Join(t.TempDir(), "new")
			if _, err := Restore("backup", a); !errors.Is(err, fs.ErrInvalid) {
				t.Errorf("a restored node at %s: %v", addr, err)
			}
		}
	}
}

// What a node that joins could not use of its members is refused as for a founder, before anything
// is written: it would wait without a word.
func TestJoin_BadMembers(t *testing.T) {
	one := Member{ID: 1, Peer: "10.0.0.1:7421"}
	for name, c := range map[string]struct {
		cfg  Config
		want string
	}{
		"no number":           {Config{Founders: []Member{one}}, "--id"},
		"nobody":              {Config{ID: 4}, "--members"},
		"itself alone":        {Config{ID: 4, Founders: []Member{{ID: 4, Peer: "10.0.0.4:7421"}}}, "--members"},
		"nobody's address":    {Config{ID: 4, Founders: []Member{one, {ID: 2, Peer: "0.0.0.0:7421"}}}, "member 2"},
		"number 0":            {Config{ID: 4, Founders: []Member{one, {ID: 0, Peer: "10.0.0.2:7421"}}}, "member 0"},
		"one number twice":    {Config{ID: 4, Founders: []Member{one, {ID: 1, Peer: "10.0.0.2:7421"}}}, "member 1"},
		"two at one address":  {Config{ID: 4, Founders: []Member{one, {ID: 2, Peer: one.Peer}}}, "members 1 and 2"},
		"at one, spelled":     {Config{ID: 4, Founders: []Member{{ID: 1, Peer: "localhost:7421"}, {ID: 2, Peer: "127.0.0.1:7421"}}}, "members 1 and 2"},
		"itself, spelled":     {Config{ID: 4, Founders: []Member{{ID: 1, Peer: "[::ffff:10.0.0.4]:7421"}}}, "--members"},
		"for both, spelled":   {Config{ID: 4, Founders: []Member{{ID: 1, Peer: "node1:7421"}, {ID: 2, Peer: "10.0.0.2:7421", Client: "NODE1:7421"}}}, "clients would find node 2, and other nodes node 1"},
		"without an address":  {Config{ID: 4, Listen: "none", Founders: []Member{one}}, "--peer"},
		"one for both":        {Config{ID: 4, Founders: []Member{one, {ID: 2, Peer: "10.0.0.2:7421", Client: one.Peer}}}, "clients would find node 2, and other nodes node 1"},
		"its own for both":    {Config{ID: 4, Client: "10.0.0.4:7421", Founders: []Member{one}}, "clients would find node 4, and other nodes node 4"},
		"nothing to complain": {Config{ID: 4, Founders: []Member{one}}, ""},
	} {
		c.cfg.Dir, c.cfg.Join, c.cfg.Listen = filepath.Join(t.TempDir(), "new"), true, map[string]string{"": "10.0.0.4:7421"}[c.cfg.Listen]
		_, err := c.cfg.filled()
		if c.want == "" && err == nil {
			continue
		}
		if !errors.Is(err, fs.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want a word of %q", name, err, c.want)
		}
	}
}

// A node that is to join, and was started without --join, is told that: it is no founder.
func TestFounders_NotAmongThem(t *testing.T) {
	_, err := (Config{Dir: t.TempDir(), ID: 4, Listen: "10.0.0.4:7421", Founders: []Member{{ID: 1, Peer: "10.0.0.1:7421"}}}).filled()
	if !errors.Is(err, fs.ErrInvalid) || !strings.Contains(err.Error(), "--join") || !strings.Contains(err.Error(), "--members") {
		t.Errorf("it is told %v", err)
	}
}

// A queue that would refuse nearly everything for ever is refused at the start.
func TestLimits_Queue(t *testing.T) {
	for n, ok := range map[int]bool{-1: false, 0: true, 1: false, 2: true} {
		if _, err := (Limits{Queue: n}).filled(); (err == nil) != ok || !ok && !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("a queue of %d: %v", n, err)
		}
	}
}

// The group knows its founders as they are given.
func TestFounders_ArePassedOn(t *testing.T) {
	c := Config{Founders: []Member{{ID: 1, Peer: "a:1", Client: "a:2"}, {ID: 2, Peer: "b:1", Client: "b:2"}}}
	want := []replica.Endpoint{{ID: 1, Peer: "a:1", Client: "a:2"}, {ID: 2, Peer: "b:1", Client: "b:2"}}
	if got := c.founders(); !slices.Equal(got, want) {
		t.Errorf("they are %+v, want %+v", got, want)
	}
}

// made is a new directory of node id, which came as number former; 0: it came as what it is.
func made(t *testing.T, id, former uint64) string {
	t.Helper()
	o := storage.Options{ClusterID: 1, NodeID: id, SegmentSize: 64 << 10}
	if former != 0 {
		o.NodeID = former
	}
	dir := t.TempDir()
	s, _, err := storage.Open(storage.OS{}, dir, o)
	if err == nil && former != 0 {
		err = s.Renumber(id)
	}
	if err = errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	return dir
}

// A directory does not start where --members has another node, whichever node led it there: that is
// said with both numbers. One that the group has given another number does, by its command
// line of before, and so do a node that moved and one that joined.
func TestDirectoryAtAnothersAddress(t *testing.T) {
	at := func(id uint64, n string) Member { return Member{ID: id, Peer: "127.0.0." + n + ":7421"} }
	three := []Member{at(1, "1"), at(2, "2"), at(3, "3")}
	joined := append(slices.Clone(three), at(4, "4"))
	for name, c := range map[string]struct {
		id, former, given uint64
		listen            string
		members           []Member
		join              bool
		refused           string
	}{
		"swapped":                       {3, 0, 0, "1", three, false, "directory of node 3, and --members has 127.0.0.1:7421, where it would listen for other nodes (--peer), for node 1: name the directory of node 1"},
		"a new cluster":                 {1, 0, 0, "3", three, false, "start it without the --members of the old one"},
		"a new cluster, as number 1":    {1, 0, 1, "3", three, false, "directory of node 1"},
		"replaced":                      {4, 1, 0, "1", three, false, ""},
		"replaced, by its old number":   {4, 1, 1, "1", three, false, ""},
		"replaced, known by its new":    {4, 1, 0, "1", []Member{at(4, "1"), at(2, "2")}, false, ""},
		"replaced and swapped":          {4, 1, 0, "2", three, false, "directory of node 4"},
		"replaced and swapped, told":    {4, 1, 1, "2", three, false, "directory of node 4"},
		"a learner":                     {4, 0, 0, "4", three, true, ""},
		"a learner among its members":   {4, 0, 4, "4", joined, true, ""},
		"a learner where another was":   {4, 0, 4, "2", three, true, ""},
		"a learner, swapped":            {3, 0, 0, "4", joined, true, "directory of node 3"},
		"where a learner's is, swapped": {4, 0, 0, "3", three, false, "directory of node 4"},
		"moved":                         {3, 0, 3, "9", three, false, ""},
		"moved, and all know":           {3, 0, 0, "9", []Member{at(1, "1"), at(2, "2"), at(3, "9")}, false, ""},
		"at home":                       {3, 0, 0, "3", three, false, ""},
		"alone":                         {3, 0, 0, "3", nil, false, ""},
	} {
		cfg := Config{Dir: made(t, c.id, c.former), ID: c.given, Founders: c.members, Listen: at(0, c.listen).Peer, Join: c.join}
		switch _, err := cfg.filled(); {
		case c.refused == "" && err != nil, c.refused != "" && (!errors.Is(err, fs.ErrInvalid) || !strings.Contains(err.Error(), c.refused)):
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Nothing is written before a directory is refused, and one that belongs to another number than it is
// started with is refused as that.
func TestDirectoryAtAnothersAddress_WritesNothing(t *testing.T) {
	three := []Member{{ID: 1, Peer: "127.0.0.1:7421"}, {ID: 2, Peer: "127.0.0.2:7421"}, {ID: 3, Peer: "127.0.0.3:7421"}}
	cfg := Config{Dir: made(t, 3, 0), Founders: three, Listen: three[0].Peer}
	before, err := os.ReadFile(filepath.Join(cfg.Dir, "vote"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(cfg); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("it is started, %v", err)
	}
	if after, err := os.ReadFile(filepath.Join(cfg.Dir, "vote")); err != nil || !slices.Equal(before, after) {
		t.Errorf("its vote was written, %v", err)
	}
	if cfg.ID = 1; !errors.Is(errOf(New(cfg)), storage.ErrForeign) {
		t.Error("as number 1 it is not refused as that of another")
	}
}

func errOf(_ *Server, err error) error { return err }
