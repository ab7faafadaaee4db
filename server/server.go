package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/address"
	"github.com/holdfast-io/holdfast/internal/node/disk"
	"github.com/holdfast-io/holdfast/internal/node/replica"
	"github.com/holdfast-io/holdfast/internal/node/storage"
	"github.com/holdfast-io/holdfast/internal/node/transport"
)

// Server is a running node.
type Server struct {
	cfg  Config
	loop *loop
	disk *disk.Disk
	addr net.Addr

	engineOnce sync.Once
	engine     *engine // of the Spaces in this process
	running    sync.WaitGroup
	notices    notices
	twin       twin
	sightings  sightings
	meets      chan struct{} // another node has shown itself
	// damaged: files of a damaged store lie in the directory, moved aside.
	damaged bool
}

// New starts a node on its directory. The node leads at once if it is alone;
// otherwise it takes part in electing a leader.
func New(cfg Config) (*Server, error) {
	s, rec, err := open(cfg)
	if err != nil {
		return nil, err
	}
	if err := s.start(rec); err != nil {
		s.disk.Close()
		return nil, startError(&s.cfg, err)
	}
	return s, nil
}

// open recovers the directory of a node. If it is damaged and there is a group to ask,
// its files are moved aside and it begins with nothing, as one that lost its disk: it
// never votes under its old number again, since it does not know what it has promised.
// Where a restore was cut off it is refused, and can be given again: nothing is moved.
func open(given Config) (*Server, replica.Recovered, error) {
	cfg, err := given.filled()
	if err != nil {
		return nil, replica.Recovered{}, given.numberless(&cfg, err)
	}
	s := &Server{cfg: cfg, meets: make(chan struct{}, 1)}
	rec, err := s.open()
	if !errors.Is(err, storage.ErrDamaged) || errors.Is(err, storage.ErrUnfinished) || !cfg.replaces() || !given.begins(&cfg) {
		return s, rec, err
	}
	if err := s.moveAside(err); err != nil {
		return nil, rec, err
	}
	given.ClusterID = cfg.ClusterID
	if s.cfg, err = given.filled(); err != nil { // without the number that the group had given
		return nil, rec, err
	}
	rec, err = s.open()
	return s, rec, err
}

// numberless says that the number of a node is missing since the file that has it is damaged,
// where a number that the node does not have is refused.
func (c *Config) numberless(known *Config, err error) error {
	if c.ID != 0 || known.Dir == "" {
		return err
	}
	_, _, damage := storage.Owner(known.files(), known.Dir)
	if !errors.Is(damage, storage.ErrDamaged) {
		return err
	}
	return startError(known, fmt.Errorf("%w. So this node does not know its number: name it (Config.ID, --id); without: %w", damage, err))
}

// begins reports whether a node can begin with nothing in the directory of a configuration, and
// as which number: the one that it was given, else the one that the directory knows, which is
// the one that it was started with if the group has given it another since.
func (c *Config) begins(known *Config) bool {
	_, id, _ := storage.Owner(known.files(), known.Dir)
	former, _ := storage.Former(known.files(), known.Dir)
	c.ID = cmp.Or(c.ID, former, id)
	next := *known
	next.ID, next.Join = c.ID, c.Join
	return c.ID != 0 && next.checkFounders() == nil && next.misplaced() == nil
}

func startError(cfg *Config, err error) error {
	return &driver.Error{Op: "start server", Name: cfg.name(), Outcome: driver.NotDone, Err: cfg.pastEntry(err)}
}

// pastEntry says what to do about an entry that cannot be applied.
func (c *Config) pastEntry(err error) error {
	u, ok := errors.AsType[*replica.Unapplied](err)
	if !ok {
		return err
	}
	return fmt.Errorf("%w. Run a version that knows it, on all nodes; if there is none, begin anew with what is before it: holdfast snapshot restore %s --until %d --data NEW", err, c.Dir, u.Revision)
}

func (s *Server) open() (rec replica.Recovered, err error) {
	if s.disk, rec, err = openDisk(&s.cfg); err != nil {
		return rec, startError(&s.cfg, err)
	}
	if err = s.arrive(&rec); err == nil {
		err = s.disk.Begin(s.cfg.ID, &rec, time.Now())
	}
	if err != nil {
		s.disk.Close()
		return rec, startError(&s.cfg, err)
	}
	if s.damaged, err = storage.Aside(s.cfg.files(), s.cfg.Dir); err != nil {
		s.disk.Close()
		return rec, startError(&s.cfg, err)
	}
	if rec.Snapshot.Index == 0 {
		err = s.cfg.lonesome()
	}
	if err != nil {
		s.disk.Close()
	}
	return rec, err
}

func (s *Server) moveAside(why error) error {
	prefix, err := storage.MoveAside(s.cfg.files(), s.cfg.Dir)
	if err != nil {
		return errors.Join(why, err)
	}
	s.notice(fmt.Errorf("%w. Its files were moved aside, as %s, and this node asks its group for a new number", why, filepath.Join(s.cfg.Dir, prefix+"*")))
	return nil
}

// replaces reports whether a node that has lost its state asks its group for a number:
// it may, and knows somebody to ask.
func (c *Config) replaces() bool { return !c.NoReplace && c.Listen != "" && c.knowsOthers() }

// knowsOthers reports whether another node is named, with an address.
func (c *Config) knowsOthers() bool {
	return slices.ContainsFunc(c.Founders, func(e Member) bool { return e.ID != c.ID && e.Peer != "" && !address.Same(e.Peer, c.Listen) })
}

func openDisk(cfg *Config) (*disk.Disk, replica.Recovered, error) {
	var salt [8]byte
	if _, err := rand.Read(salt[:]); err != nil {
		return nil, replica.Recovered{}, err
	}
	found := replica.Joining(core.Config{})
	if cfg.alone() {
		found = replica.Bootstrap(core.Config{}, cfg.founders())
	}
	return disk.Open(cfg.files(), cfg.Dir, cfg.options(binary.LittleEndian.Uint64(salt[:])), found)
}

// start runs the loop, the writer and the transport.
func (s *Server) start(rec replica.Recovered) error {
	told, ordinal := rec.Told(), rec.Machine.Ordinal() // before New applies what follows
	node, err := replica.New(s.node(), rec)
	if err != nil {
		return err
	}
	l := newLoop(node, s.cfg.Tick, told)
	l.host, l.notice, l.dir = s.cfg.host, s.notice, s.cfg.Dir
	l.itself, l.here = s.cfg.itself, s.cfg.here
	l.named = s.cfg.founders()
	l.minTTL.Store(int64(node.MinTTL()))
	l.founding.empty.Store(rec.Snapshot.Index == 0)
	l.founding.asking.Store(s.cfg.asks(&rec))
	l.hub.Begun(ordinal)
	l.disk = newWriter(s.disk, l.written)
	l.measure() // before anything is served: until then the node would take the disk for one with room
	s.loop = l
	if err := s.listen(l); err != nil {
		l.disk.close()
		return err
	}
	if l.peers != nil && !l.founding.asking.Load() {
		l.lookFor(addresses(s.cfg.founders()))
	}
	if l.act(node.Output()); l.failed != nil {
		l.disk.close()
		if l.peers != nil {
			l.peers.Close()
		}
		return l.failed
	}
	if l.peers != nil {
		l.peers.Begin() // it knows by now what this directory says
	}
	go l.run()
	switch {
	case l.founding.asking.Load():
		l.founding.wg.Go(s.askFounders)
	case l.peers != nil && s.cfg.Join && l.founding.empty.Load():
		l.founding.wg.Go(s.findPeers)
	}
	if l.peers != nil {
		l.founding.wg.Go(func() { s.seekCopies(l) })
	}
	return nil
}

// node is the configuration of the replica.
func (s *Server) node() replica.Config {
	c := &s.cfg
	self := c.self()
	return replica.Config{
		ID: c.ID, Peer: findable(self.Peer), Client: findable(self.Client), Dir: s.disk.Directory(), Solo: c.Listen == "",
		Tick: c.Tick, MinTTL: c.MinTTL, SnapshotEntries: c.SnapshotEntries, Trailing: c.host.Entries(), Seconds: time.Now().Unix(),
		Newest: c.host.Version(), CheckEvery: c.CheckEvery, Quota: c.Limits.quota(), Namespaces: c.Limits.Namespaces, MaxCommands: c.Limits.Queue,
	}
}

// alone says what is wrong with a membership that has others, on a node that has no
// address for them.
func alone(self uint64, m *replica.Membership) error {
	for _, e := range m.Endpoints {
		if e.ID != self {
			return fmt.Errorf("the group has a node %d at %s, and this node has no address for other nodes: start it with one (Config.Listen; holdfast serve --peer HOST:PORT)", e.ID, e.Peer)
		}
	}
	return nil
}

func (s *Server) listen(l *loop) error {
	if s.cfg.Listen == "" {
		return nil
	}
	ln, err := s.cfg.host.ListenTCP(s.cfg.Listen)
	if err != nil {
		return err
	}
	s.addr = ln.Addr()
	l.peers, err = transport.New(transport.Config{
		Cluster: s.cfg.ClusterID, ID: s.cfg.ID, Elsewhere: s.cfg.elsewhere(), TLS: s.cfg.PeerTLS, CAs: s.cfg.PeerCAs, Snapshot: s.receiveSnapshot(l), Dial: s.cfg.host.Dialer(),
		Dir: s.disk.Directory(), Versions: transport.Versions(l.node.Versions()), Met: s.met(l), Refused: s.refused(l), Word: s.reply(l), Deliver: s.hear(l),
		Unreachable: func(p uint64) { l.post(func(in *inbox) { in.unreachable = append(in.unreachable, p) }) }, Later: true,
	}, ln)
	if err != nil {
		ln.Close()
	}
	return err
}

// Close stops the node. What was answered is on disk; sessions live on until
// their deadline and can be attached to again.
func (s *Server) Close() error {
	s.loop.halt()
	<-s.loop.stopped
	s.running.Wait()
	s.loop.disk.close() // first: a log that waits for room holds up everything behind it
	if s.loop.peers != nil {
		s.loop.peers.Close()
	}
	s.loop.founding.wg.Wait()
	return errors.Join(s.Err(), s.disk.Close())
}

// Done is closed when the node has stopped, by Close or by itself.
func (s *Server) Done() <-chan struct{} { return s.loop.stopped }

// Err is why the node stopped by itself; nil while it runs and after Close.
func (s *Server) Err() error {
	select {
	case <-s.loop.stopped:
		return s.cfg.pastEntry(s.loop.err)
	default:
		return nil
	}
}

// Status tells where the node stands.
func (s *Server) Status(ctx context.Context) (replica.Status, error) {
	st := make(chan replica.Status, 1)
	if err := s.loop.do(ctx, func() { st <- s.loop.node.Status() }); err != nil {
		return replica.Status{}, err
	}
	return <-st, nil
}

// Members asks for a change of the membership; a node that does not lead asks the
// leader. What the
// group would not survive is refused before anything is written: fs.ErrInvalid if
// it never makes sense, driver.ErrConflict if it does not as the group stands now.
// An error with another outcome than NotDone leaves open whether it happened. The number is
// the new one of the first node that was replaced.
func (s *Server) Members(ctx context.Context, c replica.Change) (number uint64, err error) {
	number, err = s.carryOut(ctx, order{Change: &c})
	if e, ok := errors.AsType[*driver.Error](err); ok {
		e.Op, e.Name = c.String(), s.cfg.name()
		return 0, e
	}
	return number, err
}

// changeMembers asks for a change of the membership, which only the leader can do.
func changeMembers(ctx context.Context, l *loop, c replica.Change) (uint64, error) {
	data, err := l.call(ctx, func(now int64, id replica.Caller) { l.node.ChangeMembers(now, id, c) })
	if err != nil || len(data) != 8 {
		return 0, err
	}
	return binary.LittleEndian.Uint64(data), nil
}

// Transfer asks the leader to hand leadership to another voter, which has to be fit for it. With 0 only this node hands over, if
// it leads, since it is about to stop: to the voter that is best for it, another one with each call if there are several.
func (s *Server) Transfer(ctx context.Context, to uint64) error {
	if to == 0 {
		_, err := s.obey(ctx, s.loop, order{})
		return err
	}
	_, err := s.carryOut(ctx, order{Lead: to})
	return err
}

// Look runs f on the state of the machine, which then has everything that was
// answered before Look was called, and tells it the cluster time. f must neither block nor keep the machine, and does
// not run after Look has returned. A node that knows no leader, as right after
// its start, gets the time of an election.
func (s *Server) Look(ctx context.Context, f func(m *core.Machine, now int64)) error {
	for range 10 {
		ok, err := s.lookOnce(ctx, f)
		if ok || err != nil {
			return err
		}
		if err := s.otherLeads(ctx); err != nil {
			return err
		}
		select {
		case <-time.After(s.cfg.Tick):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	e := driver.Errorf("read", "", driver.ErrUnavailable, "this node knows no leader: try again, or see whether most of the nodes run")
	e.RetryAfter = time.Second
	return e
}

// otherLeads refuses a read if another node leads.
func (s *Server) otherLeads(ctx context.Context) error {
	_, err := s.Status(ctx)
	if lead, _ := s.Leader(); err == nil && lead.ID != 0 && lead.ID != s.cfg.ID {
		return &driver.Error{Op: "read", Kind: driver.ErrUnavailable, Outcome: driver.NotDone,
			Err: fmt.Errorf("%w: ask node %d, %s", ErrNotLeader, lead.ID, cmp.Or(lead.Addr, "of which it is not known here where clients find it"))}
	}
	return err
}

// lookOnce asks once; false: this node does not lead.
func (s *Server) lookOnce(ctx context.Context, f func(m *core.Machine, now int64)) (bool, error) {
	looked := make(chan bool, 1)
	var mu sync.Mutex
	left := false
	defer func() {
		mu.Lock()
		defer mu.Unlock()
		left = true
	}()
	l := s.loop
	err := l.do(ctx, func() {
		id := l.newCaller()
		l.reads[id] = func(m *core.Machine) {
			mu.Lock()
			defer mu.Unlock()
			if m != nil && !left {
				f(m, l.node.ClusterTime(l.now()))
			}
			looked <- m != nil
		}
		l.node.Read(l.now(), id)
	})
	if err != nil {
		return false, err
	}
	select {
	case ok := <-looked:
		return ok, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// Addr is where other nodes find this one; nil if it is alone.
func (s *Server) Addr() net.Addr { return s.addr }
