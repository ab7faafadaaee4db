package transport

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net"
	"sync"
	"time"
)

// Config says which node this is and what to do with what arrives.
type Config struct {
	Cluster, Group, ID uint64
	// Dir tells this node's directory from every other; 0: it has none that counts.
	Dir uint64
	// Versions are those that this node supports.
	Versions Versions
	// Met is told the directory of a peer and its versions at each handshake, and
	// Refused why a handshake failed that a peer began or answered, by TLS or the hello; peer is 0 if
	// that is not known. The kind is
	// ErrStranger or ErrVersion if it is this node that the peer must refuse. Neither
	// may block; nil: nobody is told. The directory is 0 if the peer began: only what
	// answers at the address of a number shows which directory belongs to that.
	Met     func(peer, dir uint64, v Versions)
	Refused func(peer uint64, err error)
	// Word answers a node that asks, and that has the directory dir. nil: there is no answer.
	Word func(dir uint64, question []byte) ([]byte, error)
	// Elsewhere has addresses at which peers are looked for if they are not where SetPeers says: those
	// of which the directory is known, so that nothing else is taken for them.
	Elsewhere map[uint64]string
	// TLS is used on both ends and must demand and verify certificates of both
	// (ClientAuth, ClientCAs, RootCAs). nil: plain, only for loopback.
	TLS *tls.Config
	// CAs are the signers of the nodes' certificates, asked with each connection;
	// nil: ClientCAs and RootCAs of TLS.
	CAs func() *x509.CertPool
	// Deliver takes a message from a peer, in order for each peer. It must not
	// block, nor keep data.
	Deliver func(from uint64, data []byte)
	// Unreachable is told that messages to a peer were lost. It must not block.
	Unreachable func(peer uint64)
	// Snapshot takes a snapshot from a peer: meta first, then the body from next
	// until io.EOF. Its error ends the connection, and is the sender's.
	Snapshot func(from uint64, meta []byte, next func() ([]byte, error)) error
	// QueueBytes bounds what waits for one peer; default 16 MiB.
	QueueBytes int
	// Timeout bounds a handshake, and a write that makes no progress; default
	// 5 s.
	Timeout time.Duration
	// Dial connects to the address of a peer; nil: over TCP.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// Later has the transport wait for Begin before it dials or answers anybody.
	Later bool
}

// Versions are the cluster versions that a node supports.
type Versions struct{ Least, Newest uint8 }

// supports reports whether a node can be in a group of a version; 0: that is not known.
func (v Versions) supports(version uint8) bool {
	return version == 0 || v.Least <= version && version <= v.Newest
}

// Transport is a node's connections.
type Transport struct {
	cfg    Config
	ctx    context.Context
	cancel context.CancelFunc
	begun  chan struct{} // closed: peers are dialled and answered
	wg     sync.WaitGroup

	mu      sync.Mutex
	peers   map[uint64]*peer
	back    map[uint64][]*peer // on connections that they have made, the newest last
	dirs    map[uint64]uint64
	coming  map[uint64]bool // members that have not shown their directory yet
	version uint8           // of the group; 0: not known
	conns   map[net.Conn]caller
	ln      net.Listener
}

const defaultTimeout = 5 * time.Second

// New listens on ln, which the transport closes in the end, and begins, if not [Config].Later.
func New(cfg Config, ln net.Listener) (*Transport, error) {
	if cfg.QueueBytes == 0 {
		cfg.QueueBytes = 16 << 20
	}
	cfg.Timeout = cmp.Or(cfg.Timeout, defaultTimeout)
	if cfg.TLS == nil && !loopback(ln.Addr()) {
		return nil, fmt.Errorf("transport: %w: %s is not loopback, and nodes beyond it have to show certificates: set TLS (holdfast serve: --peer-cert, --peer-key and --peer-ca)", fs.ErrInvalid, ln.Addr())
	}
	ctx, cancel := context.WithCancel(context.Background())
	t := &Transport{cfg: cfg, ctx: ctx, cancel: cancel, begun: make(chan struct{}), peers: map[uint64]*peer{}, back: map[uint64][]*peer{}, conns: map[net.Conn]caller{}, ln: ln}
	if !cfg.Later {
		t.Begin()
	}
	t.wg.Go(t.accept)
	return t, nil
}

// Begin ends what [Config].Later asks for: Know and Raise have told what this node's state says. A
// handshake before that would take the node for one without a state, whatever the other is, and its connection would stay.
func (t *Transport) Begin() { close(t.begun) }

// begins waits for Begin; false: the transport is closed.
func (t *Transport) begins() bool {
	select {
	case <-t.begun:
	case <-t.ctx.Done():
	}
	return t.ctx.Err() == nil
}

func loopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return !ok || tcp.IP.IsLoopback()
}

// Close ends every connection and waits for what it started.
func (t *Transport) Close() error {
	t.cancel()
	err := t.ln.Close()
	t.mu.Lock()
	for c := range t.conns {
		c.Close()
	}
	t.mu.Unlock()
	t.wg.Wait()
	return err
}

// SetPeers says where the peers are; "": that is not known, and a peer is looked for at
// [Config].Elsewhere alone. Those not named are forgotten, and what waits for them is dropped.
func (t *Transport) SetPeers(addrs map[uint64]string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, p := range t.peers {
		if addr, named := addrs[id]; !named || addr != p.addr {
			p.close()
			delete(t.peers, id)
		}
	}
	for id, addr := range addrs {
		if t.peers[id] == nil && id != t.cfg.ID && cmp.Or(addr, t.cfg.Elsewhere[id]) != "" && t.ctx.Err() == nil {
			p := newPeer(t, id, addr)
			t.peers[id] = p
			t.wg.Go(p.run)
		}
	}
}

// Know says which directory belongs to which number, [Removed] for those that must
// not come any more. Peers that show another are refused. Of the members without a directory, those
// that are coming have nothing yet: with the state of another group they are refused.
func (t *Transport) Know(dirs map[uint64]uint64, coming ...uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dirs, t.coming = dirs, map[uint64]bool{}
	for _, id := range coming {
		t.coming[id] = true
	}
	for c, from := range t.conns {
		if dir := dirs[from.id]; dir != 0 && dir != from.dir {
			c.Close() // it dials again, and is told
		}
	}
}

// Raise says which version the group has. Peers that do not support it are refused.
func (t *Transport) Raise(version uint8) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.version = version
	for c, from := range t.conns {
		if from.id != 0 && !from.versions.supports(version) {
			c.Close() // it dials again, and is told
		}
	}
}

// caller is the peer at the other end of a connection for messages, or of any that it has made;
// zeros before its hello.
type caller struct {
	id, dir  uint64
	versions Versions
}

// came notes which peer is at the other end of a connection; false: that peer is refused by now.
func (t *Transport) came(c net.Conn, h hello) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.conns[c] = caller{h.from, h.dir, h.versions}
	return (t.dirs[h.from] == 0 || t.dirs[h.from] == h.dir) && h.versions.supports(t.version)
}

// Removed is the directory of a number that was removed.
const Removed = math.MaxUint64

// Known is the directory of a number; 0: none is known.
func (t *Transport) Known(id uint64) uint64 {
	dir, _ := t.known(id)
	return dir
}

func (t *Transport) known(id uint64) (dir uint64, version uint8) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.dirs[id], t.version
}

func (t *Transport) peer(id uint64) *peer {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.peers[id]
}

// Send puts a message on its way to a peer, or to another node that has a connection to this one. It
// never blocks: what does not fit into the queue is lost, and told.
func (t *Transport) Send(to uint64, data []byte) {
	if p := t.road(to); p == nil || !p.enqueue(data) {
		t.cfg.Unreachable(to)
	}
}

// road is the one to a node; nil: there is none. A connection that the node itself has made is used
// as long as none stands to the address that is known here. It is not if the node is a member of
// which nobody has seen the directory yet: what is at its address shows that, and another that comes
// under its number must not make promises in its place.
func (t *Transport) road(to uint64) *peer {
	t.mu.Lock()
	defer t.mu.Unlock()
	own, back := t.peers[to], t.back[to]
	if dir, member := t.dirs[to]; len(back) == 0 || own != nil && own.up.Load() || member && dir == 0 {
		return own
	}
	return back[len(back)-1]
}

// track notes a connection so that Close can end it; false: it is too late.
func (t *Transport) track(c net.Conn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ctx.Err() != nil {
		c.Close()
		return false
	}
	t.conns[c] = caller{}
	return true
}

func (t *Transport) untrack(c net.Conn) {
	c.Close()
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.conns, c)
}

func (t *Transport) accept() {
	for t.begins() {
		c, err := t.ln.Accept()
		if err != nil {
			if t.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			t.pause(50 * time.Millisecond)
			continue
		}
		if t.track(c) {
			t.wg.Go(func() {
				defer t.untrack(c)
				t.serve(c)
			})
		}
	}
}

// pause waits, but not longer than the transport lives.
func (t *Transport) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.ctx.Done():
	}
}

// serve answers one connection. Nothing beyond the hello is read before both
// ends agree.
func (t *Transport) serve(raw net.Conn) {
	c := raw
	c.SetDeadline(time.Now().Add(t.cfg.Timeout))
	if t.cfg.TLS != nil {
		c = tls.Server(c, t.currentTLS())
	}
	h, err := readHello(c)
	if err != nil {
		from, _, _ := net.SplitHostPort(raw.RemoteAddr().String()) // the port is another each time
		t.untrusted(0, from, err)
		return
	}
	if _, err := c.Write(t.hello(h.purpose, h.from).encode()); err != nil {
		return
	}
	if err := t.judge(h, 0); err != nil || h.purpose != forQuestion && !t.came(raw, h) {
		return
	}
	c.SetDeadline(time.Time{})
	switch h.purpose {
	case forSnapshot:
		t.serveSnapshot(c, h.from)
	case forQuestion:
		t.serveQuestion(c, h.dir)
	default:
		t.serveMessages(&tracked{Conn: c, done: func() { raw.Close() }}, h.from)
	}
}

// hello is what this node says to a peer. It tells no version of the group as long as this node is on its way into the
// group that its state tells of: what it has is of before it came, and is taken for no state of its own.
func (t *Transport) hello(why purpose, to uint64) hello {
	t.mu.Lock()
	defer t.mu.Unlock()
	known, version := t.dirs[to], t.version
	if t.isComing() {
		version = 0
	}
	return hello{
		purpose: why, cluster: t.cfg.Cluster, group: t.cfg.Group, from: t.cfg.ID, to: to, dir: t.cfg.Dir, known: known,
		versions: t.cfg.Versions, current: version,
	}
}

// judge refuses a hello and tells why, or tells which node it has met, where the other side has
// the directory dir; 0: unknown.
func (t *Transport) judge(h hello, dir uint64) error {
	err := t.refuse(h)
	switch {
	case err != nil && t.cfg.Refused != nil:
		t.cfg.Refused(h.from, err)
	case err == nil && h.purpose != forQuestion && t.cfg.Met != nil:
		t.cfg.Met(h.from, dir, h.versions)
	}
	return err
}

// misplaced tells that another node answers at the address of a peer; that one tells its operator, too.
func (t *Transport) misplaced(peer, there uint64) error {
	err := fmt.Errorf("%w: node %d answers where node %d should be", ErrHandshake, there, peer)
	if t.cfg.Refused != nil {
		t.cfg.Refused(peer, err)
	}
	return err
}

// refuse says why a hello is not for this node.
func (t *Transport) refuse(h hello) error {
	switch {
	case h.cluster != t.cfg.Cluster:
		return fmt.Errorf("%w: the other side belongs to cluster %d, this is %d: start a node that is to join, or that has lost its disk, with the --cluster-id of its group, on an empty directory", ErrHandshake, h.cluster, t.cfg.Cluster)
	case h.group != t.cfg.Group:
		return fmt.Errorf("%w: the other side serves group %d, this is %d", ErrHandshake, h.group, t.cfg.Group)
	case h.purpose == forQuestion:
		return nil // a node that asks does not know the numbers yet
	case h.to != t.cfg.ID:
		return fmt.Errorf("%w: the other side means node %[2]d, this is %[3]d: while the group has no leader (holdfast status), start each node with its own directory, and with the true addresses of all in --members (a majority of the directories must not be emptied); else, if this is the address of node %[2]d (holdfast member ls), start it here as that, on an empty directory (holdfast serve --id %[2]d --join …), or tell the group where node %[2]d is (holdfast member update)", ErrHandshake, h.to, t.cfg.ID)
	case h.from == t.cfg.ID || h.from == 0:
		return fmt.Errorf("%w: the other side calls itself node %d", ErrHandshake, h.from)
	}
	if err := t.refuseDirectory(h); err != nil {
		return err
	}
	return t.refuseVersion(h)
}

// refuseVersion refuses a node that does not support the version of the group: it
// could not apply what the others write. Either side knows it of the other.
func (t *Transport) refuseVersion(h hello) error {
	_, current := t.known(h.from)
	switch {
	case !t.cfg.Versions.supports(h.current) && !t.believes(h):
		return fmt.Errorf("%w: what calls itself node %d, which this node has not met yet, is in a group of version %d, and node %d supports %s", ErrHandshake, h.from, h.current, t.cfg.ID, t.cfg.Versions)
	case !t.cfg.Versions.supports(h.current):
		return fmt.Errorf("%w: %w: node %d says that the group is of version %d, and node %d supports %s: upgrade node %[5]d",
			ErrHandshake, ErrVersion, h.from, h.current, t.cfg.ID, t.cfg.Versions)
	case !h.versions.supports(current):
		return fmt.Errorf("%w: the group is of version %d, and node %d supports %s: upgrade node %[3]d", ErrHandshake, current, h.from, h.versions)
	}
	return nil
}

func (v Versions) String() string { return fmt.Sprintf("versions %d to %d", v.Least, v.Newest) }

// refuseDirectory refuses a node that is not the one its number belongs to: its
// promises were made by another directory. Either side knows it of the other; what is
// not the node that we know by its number is heard on nothing, also not on us.
func (t *Transport) refuseDirectory(h hello) error {
	mine, _ := t.known(h.from)
	switch {
	case mine == Removed:
		return fmt.Errorf("%w: node %d was removed from the group and still runs: stop it", ErrHandshake, h.from)
	case mine != 0 && mine != h.dir:
		return fmt.Errorf("%w: what calls itself node %d has another directory than the node that the group knows by this number", ErrHandshake, h.from)
	case t.apart(h):
		return fmt.Errorf("%w: what calls itself node %d and node %d have each a state, and neither is known to the group of the other: if one is to join the group of the other, stop it, empty its directory, and start it with --join and --members; else see whether its address is right", ErrHandshake, h.from, t.cfg.ID)
	case h.known == 0 || h.known == t.cfg.Dir:
		return nil
	case !t.believes(h):
		return fmt.Errorf("%w: what calls itself node %d is of another group, which knows another node %d: see whether its address is right", ErrHandshake, h.from, t.cfg.ID)
	case h.known == Removed:
		return fmt.Errorf("%w: %w: node %d was removed from the group", ErrHandshake, ErrRemoved, t.cfg.ID)
	}
	return fmt.Errorf("%w: %w: node %d knows node %d by another", ErrHandshake, ErrStranger, h.from, t.cfg.ID)
}

// apart reports a peer with the state of another group: each of the two is known to a group by its
// directory, neither to that of the other, and the peer is no member, or one that comes with nothing. (Of one group
// one of the two is ahead in the log, and knows the other from there.) The
// logs of two groups must not meet: where number and term of an entry are the same, raft takes one for the other.
func (t *Transport) apart(h hello) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	dir, member := t.dirs[h.from]
	stated := h.current != 0 && t.cfg.Dir != 0 && t.dirs[t.cfg.ID] == t.cfg.Dir
	return stated && h.known == 0 && dir == 0 && (!member || t.coming[h.from])
}

// isComing: of the group that this node's state tells of it is no member yet, or has not shown its directory. The
// lock is held.
func (t *Transport) isComing() bool {
	_, member := t.dirs[t.cfg.ID]
	return t.dirs != nil && !member || t.coming[t.cfg.ID]
}

// believes reports whether what a peer says of this very node may end it: the group knows
// the peer by its directory, or does not know this one. Groups that never had to do with
// each other may have one cluster id, and the address of a node may lead into the other. A group that
// knows this directory never knows another by its number: a peer that does is of another group, also if it was added to both.
func (t *Transport) believes(h hello) bool {
	peer, _ := t.known(h.from)
	self, _ := t.known(t.cfg.ID)
	switch {
	case self == 0 || self != t.cfg.Dir:
		return true
	case h.known != 0 && h.known != Removed && h.known != self:
		return false
	}
	return peer != 0 && peer == h.dir
}

// dial opens a connection to a peer for a purpose.
func (t *Transport) dial(p *peer, why purpose) (net.Conn, error) {
	c, err := t.connect(p.addr)
	if err != nil {
		return nil, err
	}
	if !t.track(c) {
		return nil, net.ErrClosed
	}
	secured := c
	if t.cfg.TLS != nil {
		secured = tls.Client(c, t.clientTLS(p.addr))
	}
	answer, err := t.greet(secured, p.id, why)
	if err == nil && why == forMessages && !t.came(c, answer) {
		err = fmt.Errorf("%w: node %d is refused by now", ErrHandshake, p.id)
	}
	if err != nil {
		t.untrusted(p.id, p.addr, err)
		t.untrack(c)
		return nil, err
	}
	return &tracked{Conn: secured, done: func() { t.untrack(c) }}, nil
}

// connect is dial without a word. A host that is gone without a word is known after four
// timeouts, on a connection on which nothing is sent meanwhile.
func (t *Transport) connect(addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(t.ctx, t.cfg.Timeout)
	defer cancel()
	if t.cfg.Dial != nil {
		return t.cfg.Dial(ctx, addr)
	}
	d := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: t.cfg.Timeout, Interval: t.cfg.Timeout, Count: 3}}
	return d.DialContext(ctx, "tcp", addr)
}

// tracked is a connection that the transport forgets when it is closed.
type tracked struct {
	net.Conn
	done func()
}

func (c *tracked) Close() error {
	c.done()
	return nil
}

// currentTLS is the configuration for a connection that begins now.
func (t *Transport) currentTLS() *tls.Config {
	cfg := t.cfg.TLS.Clone()
	if t.cfg.CAs != nil {
		cfg.RootCAs = t.cfg.CAs()
		cfg.ClientCAs = cfg.RootCAs
	}
	return cfg
}

func (t *Transport) clientTLS(addr string) *tls.Config {
	cfg := t.currentTLS()
	if cfg.ServerName == "" {
		cfg.ServerName, _, _ = net.SplitHostPort(addr)
	}
	return cfg
}

func (t *Transport) greet(c net.Conn, to uint64, why purpose) (answer hello, err error) {
	c.SetDeadline(time.Now().Add(t.cfg.Timeout))
	if _, err := c.Write(t.hello(why, to).encode()); err != nil {
		return answer, err
	}
	if answer, err = readHello(c); err != nil {
		return answer, err
	}
	if answer.from != to && why != forQuestion {
		return answer, t.misplaced(to, answer.from)
	}
	if err := t.judge(answer, answer.dir); err != nil {
		return answer, err
	}
	return answer, c.SetDeadline(time.Time{})
}
