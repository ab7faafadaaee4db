package redishold_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"sync"

	"github.com/holdfast-io/holdfast/internal/kthtrip"
)

// refusals are what a server can answer instead of doing what it is asked.
var refusals = map[kthtrip.Fault]string{
	"BUSY":        "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
	"READONLY":    "READONLY You can't write against a read only replica.",
	"OOM":         "OOM command not allowed when used memory > 'maxmemory'.",
	"LOADING":     "LOADING Redis is loading the dataset in memory",
	"MASTERDOWN":  "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
	"MOVED":       "MOVED 1 127.0.0.1:1",
	"ASK":         "ASK 1 127.0.0.1:1",
	"NOSCRIPT":    "NOSCRIPT No matching script. Please use EVAL.",
	"TRYAGAIN":    "TRYAGAIN Multiple keys request during rehashing of slot",
	"CLUSTERDOWN": "CLUSTERDOWN The cluster is down",
	"UNKILLABLE":  "UNKILLABLE Sorry the script already executed write commands against the dataset.",
	"MISCONF":     "MISCONF Errors writing to the AOF file: No space left on device",
	"NOREPLICAS":  "NOREPLICAS Not enough good replicas to write.",
	"NOPERM":      "NOPERM this user has no permissions to run the 'evalsha' command",
	"ERR":         "ERR something that nobody has heard of",
	"max clients": "ERR max number of clients reached",
}

// endings are what the client hears of a request that the server has run: of a script that was
// refused its last command, and of a proxy between them that lost the answer.
var endings = map[kthtrip.Fault]string{
	"NOPERM at the end": "NOPERM this user has no permissions to access one of the channels used as arguments script: 5c1f, on @user_script:63.",
	"ERR at the end":    "ERR something that nobody has heard of script: 5c1f, on @user_script:63.",
	"proxy":             "upstream failure",
}

// fits: a server says that about a request.
func fits(f kthtrip.Fault, request []byte) bool {
	head := bytes.ToUpper(request[:min(len(request), 24)])
	switch _, ends := endings[f]; {
	case f == "NOSCRIPT":
		return bytes.Contains(head, []byte("EVALSHA"))
	case f == "proxy":
		return !bytes.Contains(head, []byte("SUBSCRIBE"))
	case ends:
		return bytes.Contains(head, []byte("EVAL"))
	}
	return true
}

// resp knows as much of Redis' protocol as it takes to count round trips, and disturb
// one: every request that a client sends is one, pipelined or not.
func resp(c *kthtrip.Conn) (requests, replies func()) {
	r := &respConn{Conn: c, counts: func([]byte) bool { return true }}
	return r.requests, r.replies
}

// commands is resp for what calls ask alone: a connection that the client opens beside
// them, and that it has heard answers, each at a time of its own, count as no round trip.
func commands(c *kthtrip.Conn) (requests, replies func()) {
	r := &respConn{Conn: c, counts: func(request []byte) bool { return !beside.Match(request) }}
	return r.requests, r.replies
}

// beside matches what is asked over a connection before calls use it, and what the client tells
// of answers.
var beside = regexp.MustCompile(`^\*\d+\r\n\$\d+\r\n(HELLO|CLIENT|CLUSTER|PING|SUBSCRIBE|HDEL)\r\n`)

// respConn is one connection of a client of Redis.
type respConn struct {
	*kthtrip.Conn
	counts func(request []byte) bool

	mu      sync.Mutex
	waiting []reply // in the order of their requests
}

// reply is one that the client waits for.
type reply struct {
	instead string        // of the server's; "": the server answers
	fault   kthtrip.Fault // of the answer
}

// requests passes on what the client asks.
func (c *respConn) requests() {
	in := bufio.NewReader(c.Client)
	for {
		request, err := readRESP(in)
		if err != nil {
			return
		}
		fault := c.due(request)
		instead, refused := refusals[fault]
		switch {
		case fault == kthtrip.CutBefore:
			return
		case refused:
			c.expect(reply{instead, fault})
			continue
		}
		c.expect(reply{"", fault})
		if _, err := c.Server.Write(request); err != nil {
			return
		}
	}
}

// due is the fault that a request meets.
func (c *respConn) due(request []byte) kthtrip.Fault {
	if !c.counts(request) {
		return ""
	}
	return c.Trip(func(f kthtrip.Fault) bool { return fits(f, request) })
}

// expect has the client wait for one more reply.
func (c *respConn) expect(r reply) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = append(c.waiting, r)
	c.refuse()
}

// refuse writes what the server is not asked for; the lock is held.
func (c *respConn) refuse() {
	for len(c.waiting) > 0 && c.waiting[0].instead != "" {
		_, _ = fmt.Fprintf(c.Client, "-%s\r\n", c.waiting[0].instead)
		if c.waiting[0].fault == "max clients" {
			c.End()
		}
		c.waiting = c.waiting[1:]
	}
}

// replies passes on what the server answers.
func (c *respConn) replies() {
	out := bufio.NewReader(c.Server)
	for {
		answer, err := readRESP(out)
		if err != nil || !c.answer(answer) {
			return
		}
	}
}

// answer passes one on; false: the connection is over.
func (c *respConn) answer(answer []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	var r reply
	if isReply(answer) && len(c.waiting) > 0 {
		r, c.waiting = c.waiting[0], c.waiting[1:]
	}
	switch r.fault {
	case kthtrip.CutAfter:
		return false
	case kthtrip.Delay:
		if !c.Wait() {
			return false
		}
	}
	if text, ends := endings[r.fault]; ends {
		answer = fmt.Appendf(nil, "-%s\r\n", text)
	}
	_, err := c.Client.Write(answer)
	c.refuse()
	return err == nil
}

// isReply tells an answer from what a server says unasked. A subscription is
// answered so, too.
func isReply(answer []byte) bool {
	if answer[0] != '>' {
		return true
	}
	head := answer[:min(len(answer), 40)]
	return bytes.Contains(head, []byte("\r\nsubscribe\r\n")) || bytes.Contains(head, []byte("\r\nunsubscribe\r\n"))
}

// readRESP reads one value as it stands.
func readRESP(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadBytes('\n')
	if err != nil || len(line) < 3 {
		return line, err
	}
	n, _ := strconv.Atoi(string(bytes.TrimSpace(line[1:])))
	switch line[0] {
	case '$', '=', '!':
		if n < 0 {
			return line, nil
		}
		body := make([]byte, n+2)
		_, err := io.ReadFull(r, body)
		return append(line, body...), err
	case '%', '|':
		n *= 2
	case '*', '~', '>':
	default:
		return line, nil
	}
	for range max(n, 0) {
		item, err := readRESP(r)
		if err != nil {
			return nil, err
		}
		line = append(line, item...)
	}
	return line, nil
}
