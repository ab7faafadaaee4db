package pghold_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/holdfast-io/holdfast/internal/kthtrip"
	"github.com/holdfast-io/holdfast/internal/services"
)

// mishap is what becomes of one round trip.
type mishap struct {
	name string
	// It can happen to the first trip of a connection, and to later ones.
	first, later bool
	strike       func(c *tripConn, unit []byte, first bool) (goesOn bool)
}

// The code that the server refuses a statement with, and what it says beside it.
func refusal(code, hint string) mishap {
	name := code
	if hint != "" {
		name += " with a hint"
	}
	return mishap{name: name, later: true, strike: func(c *tripConn, _ []byte, _ bool) bool {
		return c.ask(query(fmt.Sprintf("do $$ begin raise exception 'refused by the test' using errcode = '%s', hint = '%s'; end $$", code, hint)))
	}}
}

// fatality is the code that the server ends a connection with.
func fatality(code string, first, later bool) mishap {
	return mishap{name: code, first: first, later: later, strike: func(c *tripConn, _ []byte, _ bool) bool {
		msg := pgproto3.ErrorResponse{Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: code, Message: "ended by the test"}
		if b, err := msg.Encode(nil); err == nil {
			c.toClient(b)
		}
		return false
	}}
}

// tripDelay is how long a trip is held up: longer than waits' own pauses, shorter than
// the time after which a connection counts as lost.
const tripDelay = 150 * time.Millisecond

var mishaps = []mishap{
	{"cut before", true, true, func(*tripConn, []byte, bool) bool { return false }},
	{"cut after", true, true, func(c *tripConn, unit []byte, _ bool) bool {
		c.mute()
		c.ask(unit)
		return false
	}},
	{"cut after, and away", true, true, func(c *tripConn, unit []byte, _ bool) bool {
		c.p.refuse(4) // what is asked again at once finds no server
		c.mute()
		c.ask(unit)
		return false
	}},
	{"delay", true, true, func(c *tripConn, unit []byte, _ bool) bool {
		select {
		case <-time.After(tripDelay):
		case <-c.p.over:
		}
		return c.ask(unit)
	}},
	{"cancelled", false, true, func(c *tripConn, unit []byte, _ bool) bool {
		if _, err := c.server.Write(unit); err != nil {
			return false
		}
		c.cancel()
		return true
	}},
	refusal("57014", ""), refusal("25006", ""), refusal("55P03", ""), refusal("40P01", ""), refusal("40001", ""),
	refusal("53200", "You might need to increase max_locks_per_transaction."), refusal("53200", ""),
	fatality("57P01", true, true), fatality("57P02", true, true), fatality("57P05", false, true), fatality("25P03", false, true),
	fatality("57P03", true, false), fatality("53300", true, false),
}

// silence lets one trip reach the server, and then nothing pass either way until it is disarmed.
var silence = mishap{"silence", true, true, func(c *tripConn, unit []byte, _ bool) bool {
	c.p.toClient.Shut()
	_, err := c.server.Write(unit)
	c.p.toServer.Shut()
	return err == nil
}}

// deafness lets nothing pass any more, that trip neither.
var deafness = mishap{"deafness", true, true, func(c *tripConn, unit []byte, _ bool) bool {
	c.p.toClient.Shut()
	c.p.toServer.Shut()
	if !c.p.toServer.Pass(c.p.over) {
		return false
	}
	_, err := c.server.Write(unit)
	return err == nil
}}

// tripProxy is a way to the server on which one round trip meets a mishap: what a
// client sends up to the message that the server answers with ReadyForQuery, or the
// first message of a connection.
type tripProxy struct {
	target   string
	listener net.Listener
	running  sync.WaitGroup
	over     chan struct{}

	toClient, toServer kthtrip.Gate

	mu    sync.Mutex
	trips int
	at    int // the trip that meets it; 0: none
	what  mishap
	came  bool // that trip has come
	met   bool // and met it
	away  int  // so many connections more are refused
	conns map[net.Conn]struct{}
}

// newTripProxy opens a way to the server at addr whose trip at, from 1 on, meets what.
func newTripProxy(t testing.TB, pg *services.PostgreSQLServer, at int, what mishap) *tripProxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	p := &tripProxy{target: pg.Addr(), listener: listener, over: make(chan struct{}), at: at, what: what, conns: map[net.Conn]struct{}{}}
	p.running.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// URL is the server's URL through the proxy.
func (p *tripProxy) URL(server string) string {
	u, err := url.Parse(server)
	if err != nil {
		return server
	}
	u.Host = p.listener.Addr().String()
	return u.String()
}

func (p *tripProxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return
		}
		if p.refused() {
			_ = conn.Close()
			continue
		}
		p.running.Go(func() { p.serve(conn) })
	}
}

// refuse ends the next n connections before they begin.
func (p *tripProxy) refuse(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away = n
}

func (p *tripProxy) refused() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.away == 0 {
		return false
	}
	p.away--
	return true
}

func (p *tripProxy) close() {
	p.mu.Lock()
	select {
	case <-p.over:
	default:
		close(p.over)
	}
	_ = p.listener.Close()
	for c := range p.conns {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.running.Wait()
}

// keep notes a connection that close has to end; false: it is over.
func (p *tripProxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.over:
		return false
	default:
		p.conns[c] = struct{}{}
		return true
	}
}

func (p *tripProxy) drop(c net.Conn) {
	_ = c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

// count is the mishap of the trip that begins; nil: it has none.
func (p *tripProxy) count(first bool) *mishap {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trips++
	p.came = p.came || p.trips == p.at
	if p.trips != p.at || !(first && p.what.first || !first && p.what.later) {
		return nil
	}
	p.met = true
	return &p.what
}

// arm has the k-th trip from now on meet what.
func (p *tripProxy) arm(k int, what mishap) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at, p.what, p.came, p.met = p.trips+k, what, false, false
}

// disarm ends that, and tells whether the trip has come.
func (p *tripProxy) disarm() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at = 0
	p.toClient.Open()
	p.toServer.Open()
	return p.came
}

// open is how many connections clients have open.
func (p *tripProxy) open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}

// seen is how many trips there were, and whether one met its mishap.
func (p *tripProxy) seen() (int, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.trips, p.met
}

// tripConn is one connection through the proxy.
type tripConn struct {
	p              *tripProxy
	client, server net.Conn
	answered       chan struct{} // one for each ReadyForQuery
	secret         []byte        // process id and key, for a cancel request

	mu    sync.Mutex
	muted bool
}

func (p *tripProxy) serve(client net.Conn) {
	defer p.drop(client)
	server, err := net.Dial("tcp", p.target)
	if err != nil || !p.keep(client) || !p.keep(server) {
		return
	}
	c := &tripConn{p: p, client: client, server: server, answered: make(chan struct{}, 4096)}
	var back sync.WaitGroup
	back.Go(func() { c.answers(); _ = client.Close() })
	c.questions()
	p.drop(server)
	_ = client.Close()
	back.Wait()
}

// questions takes what the client sends, trip by trip.
func (c *tripConn) questions() {
	unit, err := readMessage(c.client, false)
	for first := true; err == nil; first = false {
		if !c.trip(unit, first) {
			return
		}
		unit = nil
		for done := false; err == nil && !done; {
			var m []byte
			if m, err = readMessage(c.client, true); err == nil {
				unit = append(unit, m...)
				done = m[0] == 'S' || m[0] == 'Q' || m[0] == 'F' || m[0] == 'X' || m[0] == 'p'
			}
		}
	}
}

// trip sends what makes up one; false: the connection is over.
func (c *tripConn) trip(unit []byte, first bool) bool {
	if !c.p.toServer.Pass(c.p.over) {
		return false
	}
	if m := c.p.count(first); m != nil {
		return m.strike(c, unit, first)
	}
	_, err := c.server.Write(unit)
	return err == nil
}

// ask sends something and waits for the answer to it.
func (c *tripConn) ask(unit []byte) bool {
	for len(c.answered) > 0 {
		<-c.answered
	}
	if _, err := c.server.Write(unit); err != nil {
		return false
	}
	select {
	case _, ok := <-c.answered:
		return ok
	case <-c.p.over:
		return false
	}
}

// answers brings back what the server sends.
func (c *tripConn) answers() {
	defer close(c.answered)
	for {
		m, err := readMessage(c.server, true)
		if err != nil {
			return
		}
		if m[0] == 'K' {
			c.mu.Lock()
			c.secret = m[5:13]
			c.mu.Unlock()
		}
		c.toClient(m)
		if m[0] == 'Z' {
			c.answered <- struct{}{}
		}
	}
}

func (c *tripConn) toClient(m []byte) {
	c.p.toClient.Pass(c.p.over)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.muted {
		_, _ = c.client.Write(m) // a client that has gone closes its side too
	}
}

// mute keeps answers from the client.
func (c *tripConn) mute() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.muted = true
}

// cancel asks the server to cancel what the connection runs.
func (c *tripConn) cancel() {
	c.mu.Lock()
	secret := c.secret
	c.mu.Unlock()
	conn, err := net.Dial("tcp", c.p.target)
	if err != nil {
		return
	}
	defer conn.Close()
	m := binary.BigEndian.AppendUint32(nil, 16)
	m = binary.BigEndian.AppendUint32(m, 80877102)
	_, _ = conn.Write(append(m, secret...))
	_, _ = conn.Read(make([]byte, 1)) // the server closes when it has sent the signal
}

// readMessage reads one message; the first of a connection has no type.
func readMessage(r io.Reader, typed bool) ([]byte, error) {
	head := make([]byte, 5)
	if !typed {
		head = head[:4]
	}
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	m := make([]byte, len(head)-4+int(binary.BigEndian.Uint32(head[len(head)-4:])))
	copy(m, head)
	_, err := io.ReadFull(r, m[len(head):])
	return m, err
}

// query is the message of a simple query.
func query(sql string) []byte {
	b, _ := (&pgproto3.Query{String: sql}).Encode(nil) // fails only beyond a gigabyte
	return b
}
