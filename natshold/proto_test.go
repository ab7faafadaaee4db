package natshold_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"

	"github.com/holdfast-io/holdfast/internal/kthtrip"
)

// refusal is what a server can answer instead of doing what it is asked: an error of
// JetStream's API, a status, or an error of the connection.
type refusal struct {
	code, number int    // of the API: HTTP's and its own
	text         string // of the API
	status       string // a header
	link         string // of the connection
	ends         bool   // the connection ends with it
}

// refusals are those that come and go; that a revision is another than expected is no
// fault.
var refusals = map[kthtrip.Fault]refusal{
	"no responders":           {status: "503"},
	"request timeout":         {status: "408 Request Timeout"},
	"temporarily unavailable": {code: 503, number: 10008, text: "JetStream system temporarily unavailable"},
	"not leader":              {code: 500, number: 10009, text: "JetStream cluster can not handle request"},
	"stream offline":          {code: 500, number: 10118, text: "stream is offline"},
	"insufficient resources":  {code: 503, number: 10023, text: "insufficient resources"},
	"account full":            {code: 400, number: 10002, text: "resource limits exceeded for account"},
	"storage full":            {code: 500, number: 10047, text: "insufficient storage resources available"},
	"maximum bytes exceeded":  {code: 503, number: 10077, text: "maximum bytes exceeded"},
	"raft":                    {code: 500, number: 10041, text: "raft: proposal failed"},
	"unheard of":              {code: 500, number: 19999, text: "something that nobody has heard of"},
	"no right":                {link: `Permissions Violation for Publish to %q`},
	"stale connection":        {link: "Stale Connection", ends: true},
	"max connections":         {link: "maximum connections exceeded", ends: true},
	"account":                 {link: "Authorization Violation", ends: true},
}

// natsProtocol knows as much of the protocol as it takes to count round trips, and
// disturb one: a message that names where its answer goes is one.
func natsProtocol(c *kthtrip.Conn) (requests, replies func()) {
	n := &natsConn{Conn: c, listens: map[string]string{}, due: map[string]kthtrip.Fault{}}
	return n.requests, n.replies
}

// natsConn is one connection of a client.
type natsConn struct {
	*kthtrip.Conn

	mu      sync.Mutex               // also of what is written to the client
	listens map[string]string        // subject or pattern → number of the subscription
	due     map[string]kthtrip.Fault // of the answers to come, by their subject
}

// frame is one message of either side with its words.
type frame struct {
	raw   []byte
	words []string
}

// readFrame reads one as it stands.
func readFrame(r *bufio.Reader) (f frame, err error) {
	if f.raw, err = r.ReadBytes('\n'); err != nil {
		return f, err
	}
	f.words = strings.Fields(string(f.raw))
	if len(f.words) == 0 {
		return f, nil
	}
	switch f.words[0] = strings.ToUpper(f.words[0]); f.words[0] {
	case "PUB", "HPUB", "MSG", "HMSG":
		size, err := strconv.Atoi(f.words[len(f.words)-1])
		if err != nil {
			return f, err
		}
		body := make([]byte, size+2)
		_, err = io.ReadFull(r, body)
		f.raw = append(f.raw, body...)
		return f, err
	}
	return f, nil
}

// answerTo is where the answer of a request goes; "": it asks for none.
func (f frame) answerTo() string {
	least := map[string]int{"PUB": 4, "HPUB": 5}[f.words[0]]
	if least == 0 || len(f.words) < least {
		return ""
	}
	return f.words[2]
}

// requests passes on what the client says.
func (c *natsConn) requests() {
	for in := bufio.NewReader(c.Client); ; {
		f, err := readFrame(in)
		if err != nil || !c.request(f) {
			return
		}
	}
}

// request passes one on; false: the connection is over.
func (c *natsConn) request(f frame) bool {
	var fault kthtrip.Fault
	if len(f.words) > 0 {
		c.subscribes(f.words)
		if to := f.answerTo(); to != "" {
			fault = c.Trip(func(fault kthtrip.Fault) bool { return fits(fault, f.words[1]) })
			if fault == kthtrip.CutBefore {
				return false
			}
			if r, ok := refusals[fault]; ok {
				return c.refuse(r, f.words[1], to)
			}
			c.expect(to, fault)
		}
	}
	_, err := c.Server.Write(f.raw)
	return err == nil
}

// fits: what is read directly is answered by a status, and all else by the API.
func fits(fault kthtrip.Fault, subject string) bool {
	r, direct := refusals[fault], strings.HasPrefix(subject, "$JS.API.DIRECT.GET.")
	return !(direct && r.code > 0) && !(!direct && strings.HasPrefix(r.status, "408"))
}

func (c *natsConn) expect(to string, fault kthtrip.Fault) {
	if fault != "" {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.due[to] = fault
	}
}

// subscribes notes what the client listens to.
func (c *natsConn) subscribes(words []string) {
	if words[0] == "SUB" {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.listens[words[1]] = words[len(words)-1]
	}
}

// listener is the number of the subscription that gets a subject; the lock is held.
func (c *natsConn) listener(subject string) string {
	if n, ok := c.listens[subject]; ok {
		return n
	}
	return c.listens[subject[:strings.LastIndexByte(subject, '.')+1]+"*"]
}

// refuse answers in the server's place. Nobody hears it where nobody listens.
func (c *natsConn) refuse(r refusal, subject, to string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.listener(to)
	switch {
	case r.link != "":
		text := r.link
		if !r.ends {
			text = fmt.Sprintf(r.link, subject)
		}
		_, _ = fmt.Fprintf(c.Client, "-ERR '%s'\r\n", text)
		return !r.ends
	case n == "":
	case r.status != "":
		head := "NATS/1.0 " + r.status + "\r\n\r\n"
		_, _ = fmt.Fprintf(c.Client, "HMSG %s %s %d %d\r\n%s\r\n", to, n, len(head), len(head), head)
	default:
		body := fmt.Sprintf(`{"error":{"code":%d,"err_code":%d,"description":%q}}`, r.code, r.number, r.text)
		_, _ = fmt.Fprintf(c.Client, "MSG %s %s %d\r\n%s\r\n", to, n, len(body), body)
	}
	return true
}

// replies passes on what the server says.
func (c *natsConn) replies() {
	for out := bufio.NewReader(c.Server); ; {
		f, err := readFrame(out)
		if err != nil || !c.reply(f) {
			return
		}
	}
}

// reply passes one on; false: the connection is over.
func (c *natsConn) reply(f frame) bool {
	switch c.fault(f) {
	case kthtrip.CutAfter:
		return false
	case kthtrip.Delay:
		if !c.Wait() {
			return false
		}
	}
	if bytes.HasPrefix(f.raw, []byte("INFO ")) {
		f.raw = alone(f.raw)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := c.Client.Write(f.raw)
	return err == nil
}

// fault is what happens to an answer.
func (c *natsConn) fault(f frame) kthtrip.Fault {
	if len(f.words) < 2 {
		return ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	fault := c.due[f.words[1]]
	delete(c.due, f.words[1])
	return fault
}

// alone is what a server tells of itself without other ways to it: the client would
// go round the proxy.
func alone(info []byte) []byte {
	return bytes.Replace(info, []byte(`"connect_urls"`), []byte(`"connect_none"`), 1)
}
