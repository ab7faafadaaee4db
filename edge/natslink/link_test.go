//go:build unix

package natslink_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast/crdt"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/edge"
	"github.com/holdfast-io/holdfast/edge/natslink"
	"github.com/holdfast-io/holdfast/internal/services"
	"github.com/holdfast-io/holdfast/limit"
)

// childURL has the test binary be a node that counts until it is killed.
const childURL = "NATSLINK_TEST_CHILD"

// TestMain also checks that nothing is left running when the tests have ended.
func TestMain(m *testing.M) {
	if url := os.Getenv(childURL); url != "" {
		child(url)
	}
	goleak.VerifyTestMain(services.Main(m))
}

// fast is settings under which a test need not wait long.
var fast = edge.Config{Flush: 20 * time.Millisecond, State: time.Second}

// link opens one with subjects and a stream of the test's own.
func link(t testing.TB, url string, o *natslink.Options) *natslink.Link {
	t.Helper()
	if o == nil {
		o = &natslink.Options{}
	}
	name := strings.NewReplacer("/", "_", " ", "_", "#", "_").Replace(t.Name())
	o.Stream, o.Subject = name, "test."+name
	l, err := natslink.Open(t.Context(), url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func node(t testing.TB, actor string, l edge.Link) *edge.Node {
	t.Helper()
	return nodeOf(t, fast, actor, l)
}

func nodeOf(t testing.TB, c edge.Config, actor string, l edge.Link) *edge.Node {
	t.Helper()
	c.Actor, c.Link = actor, l
	n, err := edge.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	return n
}

func counter(t testing.TB, n *edge.Node, name string) *edge.Counter {
	t.Helper()
	c, err := n.Counter(name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// agree waits until all nodes have that value, and no more.
func agree(t testing.TB, want uint64, nodes ...*edge.Node) time.Duration {
	t.Helper()
	return agreeOn(t, "x", want, nodes...)
}

func agreeOn(t testing.TB, name string, want uint64, nodes ...*edge.Node) time.Duration {
	t.Helper()
	began := time.Now()
	for _, n := range nodes {
		c := counter(t, n, name)
		changes, stop := c.Watch()
		for end := time.After(time.Minute); c.Value() != want; {
			select {
			case <-changes:
			case <-end:
				t.Fatalf("%s has %d, not %d: %v, %+v", n.Actor(), c.Value(), want, c.ByActor(), n.Stats())
			}
		}
		stop()
	}
	return time.Since(began)
}

// three are nodes with a connection each.
func three(t testing.TB, url string) (nodes []*edge.Node) {
	for _, name := range []string{"a", "b", "c"} {
		nodes = append(nodes, node(t, name, link(t, url, nil)))
	}
	return nodes
}

// TestConverge: three nodes count together, also one of a strange name, and one that
// comes later knows all.
func TestConverge(t *testing.T) {
	url := services.SharedNATS(t).URL()
	nodes := append(three(t, url), node(t, "pod *.>/ü\x00", link(t, url, nil)))
	for i, n := range nodes {
		counter(t, n, "x").Add(uint64(10 + i))
	}
	agree(t, 46, nodes...)
	agree(t, 46, node(t, "late", link(t, url, nil)))
}

// TestTenthAndEleventh: of a limit of ten in a minute the tenth is allowed and the
// eleventh denied, whichever of three nodes is asked.
func TestTenthAndEleventh(t *testing.T) {
	var limiters []*edge.Limiter
	for _, n := range three(t, services.SharedNATS(t).URL()) {
		l, err := n.Limiter("l", edge.LimiterConfig{Rate: limit.Rate{Count: 10, Per: 24 * time.Hour, Algorithm: limit.FixedWindow}})
		if err != nil {
			t.Fatal(err)
		}
		limiters = append(limiters, l)
	}
	now := time.Now()
	for i := range 11 {
		l := limiters[i%3]
		eventually(t, func() bool { return l.Count("k", now) == int64(i) }, func() string { return fmt.Sprintf("request %d: a node knows of %d", i+1, l.Count("k", now)) })
		if d, err := l.Take("k", now, 1); err != nil || d.Allowed != (i < 10) {
			t.Fatalf("request %d: %+v, %v", i+1, d, err)
		}
	}
}

// TestWithoutTheOthers: what a node told before it ended is in the stream for one that
// comes when nobody is left.
func TestWithoutTheOthers(t *testing.T) {
	url := services.SharedNATS(t).URL()
	l := link(t, url, nil)
	many := fast
	many.MaxMessage = 50 // a part for each, more than a consumer would have unacknowledged
	a := nodeOf(t, many, "a", l)
	for i := range 3000 {
		counter(t, a, fmt.Sprint("c", i)).Add(1)
	}
	counter(t, a, "x").Add(7)
	a.Close()
	l.Close()
	b := node(t, "b", link(t, url, nil))
	agree(t, 7, b)
	eventually(t, func() bool { return len(b.AllCounts()) >= 3001 }, func() string { return fmt.Sprintf("%d counters came back", len(b.AllCounts())) })
}

// eventually waits for what comes over NATS; missing says what did not.
func eventually(t *testing.T, is func() bool, missing func() string) {
	t.Helper()
	for again, end := time.Tick(time.Millisecond), time.After(time.Minute); !is(); {
		select {
		case <-again:
		case <-end:
			t.Fatal(missing())
		}
	}
}

// TestLimiterOpenedLate: what a limiter counted before all nodes were gone is known to one
// that opens it long after it has read what is kept.
func TestLimiterOpenedLate(t *testing.T) {
	url := services.SharedNATS(t).URL()
	c := edge.LimiterConfig{Rate: limit.Rate{Count: 10, Per: 24 * time.Hour, Algorithm: limit.FixedWindow}}
	now := time.Now()
	a := node(t, "a", link(t, url, nil))
	l, err := a.Limiter("l", c)
	if err != nil {
		t.Fatal(err)
	}
	if d, err := l.Take("k", now, 9); err != nil || !d.Allowed {
		t.Fatalf("%+v, %v", d, err)
	}
	counter(t, a, "x").Add(1)
	a.Close()
	b := node(t, "b", link(t, url, nil))
	agree(t, 1, b)
	if l, err = b.Limiter("l", c); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return l.Count("k", now) == 9 }, func() string { return fmt.Sprintf("%d of the key, not 9", l.Count("k", now)) })
}

// TestRights: a right that is missing is named, and the rights in the package's
// documentation are enough.
func TestRights(t *testing.T) {
	server := services.NATS(t, services.Setting("authorization", `{users: [
		{user: full, password: secret}
		{user: user, password: secret, permissions: {
			publish: ["s.>", "$JS.API.STREAM.INFO.S", "$JS.API.CONSUMER.CREATE.S.>", "$JS.API.CONSUMER.DELETE.S.>", "$JS.FC.S.>"]
			subscribe: ["s.d", "_INBOX.>"]}}
		{user: mute, password: secret, permissions: {
			publish: ["$JS.API.STREAM.INFO.S", "$JS.API.CONSUMER.CREATE.S.>"], subscribe: ["s.d", "_INBOX.>"]}}
		{user: changes, password: secret, permissions: {
			publish: ["s.d", "$JS.API.STREAM.INFO.S", "$JS.API.CONSUMER.CREATE.S.>", "$JS.FC.S.>"], subscribe: ["s.d", "_INBOX.>"]}}
		{user: stuck, password: secret, permissions: {
			publish: ["s.>", "$JS.API.STREAM.INFO.S", "$JS.API.CONSUMER.CREATE.S.>"], subscribe: ["s.d", "_INBOX.>"]}}
		{user: deaf, password: secret, permissions: {publish: [">"], subscribe: ["_INBOX.>"]}}
		{user: blind, password: secret, permissions: {publish: ["nothing"], subscribe: ["_INBOX.>"]}}
	]}`))
	as := func(user string) string {
		return strings.Replace(server.URL(), "//", "//"+user+":secret@", 1) + "?stream=S&subject=s"
	}
	refuses(t, strings.Replace(as("full"), ":secret", ":secretary", 1), fs.ErrPermission, "refuses the user")
	refuses(t, as("blind"), fs.ErrPermission, "$JS.API.STREAM.INFO.S")
	refuses(t, as("user"), fs.ErrPermission, `no stream "S"`, "$JS.API.STREAM.CREATE.S")
	refuses(t, as("full")+"&create=false", fs.ErrNotExist, `no stream "S"`)
	full, err := natslink.Open(t.Context(), as("full"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	refuses(t, as("mute"), fs.ErrPermission, `"s.d"`)
	refuses(t, as("deaf"), fs.ErrPermission, `"s.d"`)
	refuses(t, as("changes"), fs.ErrPermission, `"s.s.>"`)
	refuses(t, as("stuck"), fs.ErrPermission, `"$JS.FC.S.>"`)
	defer func() {
		js := stream(t, as("full"))
		all := func() map[string]bool { return kept(t, js, "S", "s.s.>") }
		eventually(t, func() bool { return len(kept(t, js, "S", "s.s.*.*.counters.*")) == 2 }, func() string { return fmt.Sprint("the stream of two nodes has ", all()) })
		if all()["s.s.rights"] {
			t.Errorf("the stream of two nodes has %v", all())
		}
	}()
	user, err := natslink.Open(t.Context(), as("user"), &natslink.Options{OnError: func(err error) { t.Errorf("a user with all rights: %v", err) }})
	if err != nil {
		t.Fatal(err)
	}
	defer user.Close()
	a, b := node(t, "a", full), node(t, "b", user)
	counter(t, a, "x").Add(1)
	counter(t, b, "x").Add(1)
	agree(t, 2, a, b)
	a.Close()
	b.Close()
}

// stream is the way to the streams of a server.
func stream(t *testing.T, url string) nats.JetStreamContext {
	t.Helper()
	at, _, _ := strings.Cut(url, "?")
	return jetStream(t, connect(t, at))
}

// connect connects a test by itself. A busy machine may take seconds to answer.
func connect(t *testing.T, url string, o ...nats.Option) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(url, append(o, nats.Timeout(time.Minute))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

func jetStream(t *testing.T, nc *nats.Conn) nats.JetStreamContext {
	t.Helper()
	js, err := nc.JetStream(nats.MaxWait(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// kept are the subjects of what a stream keeps.
func kept(t *testing.T, js nats.JetStreamContext, stream, filter string) map[string]bool {
	t.Helper()
	info, err := js.StreamInfo(stream, &nats.StreamInfoRequest{SubjectsFilter: filter})
	if err != nil {
		t.Fatal(err)
	}
	subjects := map[string]bool{}
	for s := range info.State.Subjects {
		subjects[s] = true
	}
	return subjects
}

// refuses checks the error of an Open that must fail.
func refuses(t *testing.T, url string, kind error, words ...string) {
	t.Helper()
	l, err := natslink.Open(t.Context(), url, nil)
	if err == nil {
		l.Close()
	}
	if !errors.Is(err, kind) || strings.Contains(err.Error(), "secret") {
		t.Errorf("%s: %v; want %v", url, err, kind)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%s: %q does not say %q", url, err, w)
		}
	}
}

func TestBadInput(t *testing.T) {
	for _, url := range []string{
		"nats:", "nats:///", "redis://h", "nats://h/b", "nats://h#f", "nats://h?replicas=0x", "nats://h?replicas=6", "nats://h?retention=1ms", "nats://h?retention=x",
		"nats://h?storage=tape", "nats://h?create=perhaps", "nats://h?nonsense=1", "nats://h?stream=a.b", "nats://h?subject=a..b", "nats://h?subject=a.*",
		"nats://h?stream=" + strings.Repeat("s", 300), "nats://h?holdfast_tls_cert=x", "nats://\x7f", "nats://user:secret@h?subject=.", "nats://h?stream=a;subject=b", "nats://h?stream=%zz",
	} {
		refuses(t, url, fs.ErrInvalid)
	}
	if _, err := natslink.New(t.Context(), nil, nil); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("no connection: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := natslink.Open(ended, "nats://127.0.0.1:1", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("with an ended context: %v", err)
	}
	refuses(t, services.NATS(t, services.Setting("jetstream", "disabled")).URL(), driver.ErrUnavailable, "JetStream is not enabled")
	url := services.SharedNATS(t).URL()
	refuses(t, url+"?stream=R&subject=r&replicas=3", fs.ErrInvalid, "3 replicas")
	nc := connect(t, url)
	js := jetStream(t, nc)
	if _, err := js.AddStream(&nats.StreamConfig{Name: "ALL", Subjects: []string{"all.s.>"}}); err != nil {
		t.Fatal(err)
	}
	refuses(t, url+"?stream=ALL&subject=all", fs.ErrInvalid, "max_msgs_per_subject")
	refuses(t, url+"?stream=ALL&subject=other", fs.ErrInvalid, "subjects")
	for setting, c := range map[string]nats.StreamConfig{"max_msg_size": {MaxMsgSize: 64<<10 - 1}, "no_ack": {NoAck: true}} {
		c.Name, c.Subjects, c.MaxMsgsPerSubject = setting, []string{setting + ".s.>"}, 1
		if _, err := js.AddStream(&c); err != nil {
			t.Fatal(err)
		}
		refuses(t, url+"?stream="+setting+"&subject="+setting, fs.ErrInvalid, setting)
	}
	refuses(t, url+"?stream=SECOND&subject=all", fs.ErrInvalid, "overlap", "choose another stream or subject")
}

// TestTLS: a URL names the authority that is believed and what the client shows.
func TestTLS(t *testing.T) {
	dir, ours := t.TempDir(), services.NewAuthority(t, "ours")
	ca, cert, key := ours.WriteRoots(t, dir), filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	services.WritePair(t, ours.Issue(t, "127.0.0.1"), cert, key)
	server := services.NATS(t, services.Setting("tls", fmt.Sprintf("{cert_file: %q, key_file: %q, ca_file: %q, verify: true}", cert, key, ca)))
	url := server.URL() + "?holdfast_tls_ca=" + ca + "&holdfast_tls_cert=" + cert + "&holdfast_tls_key=" + key
	a, b := node(t, "a", link(t, url, nil)), node(t, "b", link(t, url, nil))
	counter(t, a, "x").Add(1)
	agree(t, 1, a, b)
}

// TestCallersConnection is used and never closed; the stream is made as the options say.
func TestCallersConnection(t *testing.T) {
	nc := connect(t, services.SharedNATS(t).URL())
	l, err := natslink.New(t.Context(), nc, &natslink.Options{Stream: "CALLERS", Subject: "callers", Memory: true, Retention: time.Hour, Replicas: 1})
	if err != nil {
		t.Fatal(err)
	}
	a := node(t, "a", l)
	counter(t, a, "x").Add(1)
	a.Close()
	l.Close()
	js := jetStream(t, nc)
	info, err := js.StreamInfo("CALLERS")
	if err != nil {
		t.Fatal(err)
	}
	if c := info.Config; c.Storage != nats.MemoryStorage || c.MaxAge != time.Hour || c.MaxMsgsPerSubject != 1 || c.Subjects[0] != "callers.s.>" {
		t.Errorf("the stream was made as %+v", c)
	}
}

// TestOnTheWire: large messages are compressed, a traceparent is carried, and what is
// none is not.
func TestOnTheWire(t *testing.T) {
	url := services.SharedNATS(t).URL()
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	var parents atomic.Int64
	heard := make(chan string, 1000)
	sending := link(t, url, &natslink.Options{Trace: func() string {
		if parents.Add(1)%2 == 1 {
			return parent + "\r\nx: y"
		}
		return parent
	}})
	listening := link(t, url, &natslink.Options{OnTrace: func(s string) { heard <- s }})
	nc := connect(t, url)
	raw, err := nc.SubscribeSync("test.TestOnTheWire.d")
	if err != nil {
		t.Fatal(err)
	}
	nc.Flush()
	a, b := node(t, "a", sending), node(t, "b", listening)
	for i := range 100 {
		counter(t, a, fmt.Sprint("a counter of a long name ", i)).Add(1)
	}
	counter(t, a, "x").Add(1)
	agree(t, 1, b)
	if got := <-heard; got != parent {
		t.Errorf("the traceparent %q came", got)
	}
	for compressed := false; !compressed; {
		m, err := raw.NextMsg(time.Minute)
		if err != nil {
			t.Fatalf("no compressed message came: %v", err)
		}
		if v := m.Header.Values("traceparent"); len(v) > 0 && v[0] != parent || m.Header.Get("x") != "" {
			t.Errorf("headers %v", m.Header)
		}
		compressed = m.Header.Get("Content-Encoding") == "s2"
	}
}

// TestGarbage: what is no message, what claims to be larger than any, and messages of
// another version are counted and change nothing; two nodes of one name are told.
func TestGarbage(t *testing.T) {
	url := services.SharedNATS(t).URL()
	conflicts := make(chan crdt.Actor, 10)
	c, l := fast, link(t, url, nil)
	c.Actor, c.Link, c.OnConflict = "a", l, func(a crdt.Actor) { conflicts <- a }
	a, err := edge.Open(c)
	if err == nil {
		err = l.Flush() // the node listens
	}
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	nc := connect(t, url)
	for _, to := range []string{"d", "s.x", "s.a.1.0"} {
		for _, m := range []*nats.Msg{
			{Data: []byte("garbage")}, {Data: []byte("hfe\x02")}, {Data: []byte{0xff, 0xff, 0xff, 0xff, 0x0f, 1}, Header: nats.Header{"Content-Encoding": {"s2"}}},
			{Data: []byte("x"), Header: nats.Header{"Content-Encoding": {"s2"}}}, {Data: []byte("x"), Header: nats.Header{"traceparent": {"x"}}},
		} {
			m.Subject = "test.TestGarbage." + to
			if err := nc.PublishMsg(m); err != nil {
				t.Fatal(err)
			}
		}
	}
	b := node(t, "a", link(t, url, nil))
	counter(t, a, "x").Add(1)
	counter(t, b, "x").Add(1)
	agree(t, 2, a, b)
	if got := <-conflicts; got != b.Actor() {
		t.Errorf("the conflict of %s was told", got)
	}
	// Of each subject in the stream the last one may be all that comes.
	eventually(t, func() bool { return a.Stats().Garbage >= 7 }, func() string { return fmt.Sprintf("%+v", a.Stats()) })
}
