package natshold_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/services"
	"github.com/holdfast-io/holdfast/natshold"
)

// refuses checks the error of an Open that must fail.
func refuses(t *testing.T, url string, kind error, words ...string) {
	t.Helper()
	says := func(err error, word string) bool { return strings.Contains(err.Error(), word) }
	meant := func(err error) bool {
		return errors.Is(err, kind) && !slices.ContainsFunc(words, func(w string) bool { return !says(err, w) })
	}
	s, err := answeredOr(meant, func() (*holdfast.Space, error) { return holdfast.Open(t.Context(), url) })
	if err == nil {
		_ = s.Close()
	}
	if !errors.Is(err, kind) || !holdfast.NotDone(err) {
		t.Errorf("%s: %v; want %v", url, err, kind)
		return
	}
	for _, w := range words {
		if !says(err, w) {
			t.Errorf("%s: %q does not say %q", url, err, w)
		}
	}
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("the text shows a password: %v", err)
	}
}

func TestBadURLs(t *testing.T) {
	for _, url := range []string{
		"nats:", "nats:///b", "nats://h/a.b", "nats://h/a/b", "nats://h/a*", "nats://h?replicas=0x", "nats://h?replicas=6", "nats://h?replicas=-1",
		"nats://h?history=65", "nats://h?history=many", "nats://h?storage=tape", "nats://h?create=perhaps", "nats://h?nonsense=1", "nats://h/b#f",
	} {
		refuses(t, url, fs.ErrInvalid)
	}
	if _, err := natshold.New(t.Context(), nil, nil); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("no connection: %v", err)
	}
	if _, err := natshold.New(t.Context(), &nats.Conn{}, &natshold.Options{Bucket: "a b"}); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("a bad bucket: %v", err)
	}
}

// Nobody there, and somebody who is not NATS and says nothing.
func TestUnreachable(t *testing.T) {
	refuses(t, "nats://user:secret@127.0.0.1:1/b", holdfast.ErrUnavailable, "no connection")
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	defer mute.Close()
	refuses(t, "nats://user:secret@"+mute.Addr().String(), holdfast.ErrUnavailable)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := driver.Open(ended, "nats://"+mute.Addr().String()); !errors.Is(err, context.Canceled) {
		t.Errorf("with an ended context: %v", err)
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := driver.Open(short, "nats://"+mute.Addr().String()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with a short time: %v", err)
	}
}

// Of several addresses one that answers is enough.
func TestFurtherAddress(t *testing.T) {
	server := services.SharedNATS(t)
	s := open(t, "nats://127.0.0.1:1/further?addr="+server.Addr())
	check(t, s.Ping(t.Context()))
}

// A URL names the authority that is believed and what the client shows.
func TestTLS(t *testing.T) {
	dir, ours := t.TempDir(), services.NewAuthority(t, "ours")
	ca, cert, key := ours.WriteRoots(t, dir), filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	services.WritePair(t, ours.Issue(t, "127.0.0.1"), cert, key)
	server := services.NATS(t, services.Setting("tls", fmt.Sprintf("{cert_file: %q, key_file: %q, ca_file: %q, verify: true}", cert, key, ca)))
	files := "?holdfast_tls_ca=" + ca + "&holdfast_tls_cert=" + cert + "&holdfast_tls_key=" + key
	check(t, open(t, server.URL()+"/b"+files).Ping(t.Context()))
	refuses(t, server.URL()+"/b", holdfast.ErrUnavailable, "certificate")
	refuses(t, server.URL()+"/b?holdfast_tls_ca="+key, fs.ErrInvalid, "no certificate in PEM")
	refuses(t, services.SharedNATS(t).URL()+"/b"+files, holdfast.ErrUnavailable, "secure")
}

func TestWithoutJetStream(t *testing.T) {
	server := services.NATS(t, services.Setting("jetstream", "disabled"))
	refuses(t, server.URL()+"/b", holdfast.ErrUnavailable, "JetStream is not enabled", "-js")
}

// rights are users of a server: full may do everything, user what its own
// account of the documentation says, and blind may not even look.
const rights = `{users: [
	{user: full, password: secret}
	{user: user, password: secret, permissions: {
		publish: ["$KV.b.>", "$JS.API.STREAM.INFO.KV_b", "$JS.API.STREAM.MSG.GET.KV_b", "$JS.API.DIRECT.GET.KV_b.>",
			"$JS.API.CONSUMER.CREATE.KV_b.>", "$JS.API.CONSUMER.DELETE.KV_b.>", "$JS.API.CONSUMER.MSG.NEXT.KV_b.>"]
		subscribe: ["_INBOX.>"]}}
	{user: reader, password: secret, permissions: {
		publish: ["$JS.API.STREAM.INFO.KV_b", "$JS.API.DIRECT.GET.KV_b.>"], subscribe: ["_INBOX.>"]}}
	{user: blind, password: secret, permissions: {publish: ["nothing"], subscribe: ["_INBOX.>"]}}
]}`

// as is the server's URL with a user.
func as(url, user string) string { return strings.Replace(url, "//", "//"+user+":secret@", 1) + "/b" }

// A right that is missing is named, at once, and the rights in the package's
// documentation are enough.
func TestRights(t *testing.T) {
	server := services.NATS(t, services.Setting("authorization", rights))
	url := server.URL()
	refuses(t, strings.Replace(as(url, "full"), ":secret", ":secretary", 1), fs.ErrPermission, "refuses the user")
	refuses(t, url+"/b", fs.ErrPermission)
	refuses(t, as(url, "blind"), fs.ErrPermission, "$JS.API.STREAM.INFO.KV_b")
	refuses(t, as(url, "user"), fs.ErrPermission, `no bucket "b"`, "$JS.API.STREAM.CREATE.KV_b")
	refuses(t, as(url, "full")+"?create=false", fs.ErrNotExist, `no bucket "b"`)

	full := open(t, as(url, "full"))
	must(full.Counter("c").Add(t.Context(), 1))(t)
	user := open(t, as(url, "user"))
	h := must(user.Mutex("m").Acquire(t.Context()))(t)
	must(user.Counter("c").Add(t.Context(), 1))(t)
	must(user.KV().Page(t.Context(), ""))(t)
	for _, err := range user.Watch(t.Context(), "", 0) {
		check(t, err)
		break
	}
	check(t, h.Release())

	reader := open(t, as(url, "reader"))
	if n, err := reader.Counter("c").Load(t.Context()); err != nil || n != 2 {
		t.Errorf("a reader reads %d, %v", n, err)
	}
	var watching error
	for _, err := range reader.Watch(t.Context(), "", 0) {
		watching = err
	}
	if want := `to "$JS.API.CONSUMER.CREATE.KV_b.>"`; !strings.Contains(fmt.Sprint(watching), want) {
		t.Errorf("a watch by a reader: %v; want the right %s", watching, want)
	}
	for what, err := range map[string]error{
		"add":   second(reader.Counter("c").Add(t.Context(), 1)),
		"try":   second(reader.Mutex("m").TryAcquire(t.Context())),
		"put":   second(reader.KV().Put(t.Context(), "k", nil)),
		"range": second(reader.KV().Page(t.Context(), "")),
		"watch": watching,
	} {
		if !errors.Is(err, fs.ErrPermission) || !holdfast.NotDone(err) || !strings.Contains(err.Error(), "lacks the right") {
			t.Errorf("%s by a reader: %v", what, err)
		}
	}
}

// A bucket that forgets, or that is none, is refused.
func TestUnfitBuckets(t *testing.T) {
	server := services.NATS(t)
	js := streams(t, connect(t, server.URL()))
	for _, b := range []struct {
		name, word string
		cfg        nats.StreamConfig
	}{
		{"ttl", "max_age", nats.StreamConfig{Subjects: []string{"$KV.ttl.>"}, MaxMsgsPerSubject: 1, MaxAge: time.Hour}},
		{"stream", "subjects", nats.StreamConfig{Subjects: []string{"other.>"}, MaxMsgsPerSubject: 1}},
		{"drops", "max_bytes", nats.StreamConfig{Subjects: []string{"$KV.drops.>"}, MaxMsgsPerSubject: 1, MaxBytes: 1 << 20}},
		{"few", "max_msgs", nats.StreamConfig{Subjects: []string{"$KV.few.>"}, MaxMsgsPerSubject: 1, MaxMsgs: 1000}},
		{"read", "retention", nats.StreamConfig{Subjects: []string{"$KV.read.>"}, MaxMsgsPerSubject: 1, Retention: nats.InterestPolicy}},
		{"keeps", "max_msgs_per_subject", nats.StreamConfig{Subjects: []string{"$KV.keeps.>"}}},
		{"copy", "mirror", nats.StreamConfig{Mirror: &nats.StreamSource{Name: "KV_ttl"}, MaxMsgsPerSubject: 1}},
	} {
		b.cfg.Name = "KV_" + b.name
		must(js.AddStream(&b.cfg))(t)
		refuses(t, server.URL()+"/"+b.name, fs.ErrInvalid, "use another", b.word)
	}
	refuses(t, server.URL()+"/many?replicas=3", fs.ErrInvalid, "3 replicas")
	must(js.AddStream(&nats.StreamConfig{Name: "wide", Subjects: []string{"$KV.taken.k.>"}}))(t)
	refuses(t, server.URL()+"/taken", fs.ErrInvalid, "overlap", "choose another name")
}

// A bucket that the tools of NATS made serves, and one that is full says so.
func TestForeignBucket(t *testing.T) {
	server := services.NATS(t)
	js := streams(t, connect(t, server.URL()))
	kv := must(js.CreateKeyValue(&nats.KeyValueConfig{Bucket: "small", History: 3, MaxBytes: 4000, MaxValueSize: 2000}))(t)
	must(kv.PutString("their.own_key", "theirs"))(t)
	s := open(t, server.URL()+"/small?create=false")
	check(t, must(s.Mutex("m").Acquire(t.Context()))(t).Release())
	if keys := must(s.KV().Page(t.Context(), ""))(t); keys.Count != 0 {
		t.Errorf("somebody else's keys are told: %v", keys)
	}
	if _, err := s.KV().Put(t.Context(), "k", make([]byte, 3000)); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("a value above the bucket's limit: %v", err)
	}
	if _, err := s.KV().Put(t.Context(), "k", make([]byte, 2<<20)); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("a value above the server's limit: %v", err)
	}
	var full error
	for i := 0; i < 20 && full == nil; i++ {
		_, full = s.KV().Put(t.Context(), strings.Repeat("k", i+1), make([]byte, 500))
	}
	if !errors.Is(full, holdfast.ErrExhausted) || !holdfast.NotDone(full) {
		t.Errorf("a full bucket: %v", full)
	}
}

// TestBucketIsDeleted: one that is gone is an error that says so, and so is one
// that was made anew: its revisions would give tokens twice.
func TestBucketIsDeleted(t *testing.T) {
	server := services.NATS(t)
	js := streams(t, connect(t, server.URL()))
	s := open(t, server.URL()+"/b")
	h := short(t, s, "m")
	for range 5 {
		must(s.Counter("c").Add(t.Context(), 1))(t)
	}
	check(t, js.DeleteStream("KV_b"))
	for what, err := range map[string]error{
		"add":     second(s.Counter("c").Add(t.Context(), 1)),
		"acquire": second(s.Mutex("n").Acquire(t.Context())),
		"list":    second(s.KV().Page(t.Context(), "")),
		"get":     second(s.KV().Get(t.Context(), "k")),
		"inspect": second(s.Inspect(t.Context(), "n")),
	} {
		if !errors.Is(err, holdfast.ErrUnavailable) || errors.Is(err, holdfast.ErrNotFound) || !holdfast.NotDone(err) || !strings.Contains(err.Error(), "gone") {
			t.Errorf("%s: %v", what, err)
		}
	}
	<-h.Done()
	if !errors.Is(h.Err(), holdfast.ErrLost) {
		t.Errorf("the hold: %v", h.Err())
	}
	fresh := open(t, server.URL()+"/b")
	if got := must(fresh.Mutex("m").TryAcquire(t.Context()))(t); got.Token() <= h.Token() {
		t.Errorf("in a bucket made anew the token %d came after %d", got.Token(), h.Token())
	}
	for what, err := range map[string]error{
		"try":  second(s.Mutex("n").TryAcquire(t.Context())),
		"load": second(s.Counter("c").Load(t.Context())),
	} {
		if !errors.Is(err, holdfast.ErrUnavailable) || !strings.Contains(err.Error(), "made anew") {
			t.Errorf("%s in a bucket that was made anew: %v", what, err)
		}
	}
}

// TestCallersConnection is used and never closed.
func TestCallersConnection(t *testing.T) {
	server := services.SharedNATS(t)
	nc := connect(t, server.URL())
	d := must(natshold.New(t.Context(), nc, &natshold.Options{Bucket: "callers", Memory: true, History: 2, Replicas: 1}))(t)
	s := must(holdfast.New(d))(t)
	h := must(s.Mutex("m").Acquire(t.Context()))(t)
	check(t, h.Release())
	info := must(streams(t, nc).StreamInfo("KV_callers"))(t)
	if c := info.Config; c.Storage != nats.MemoryStorage || c.MaxMsgsPerSubject != 2 || c.Replicas != 1 {
		t.Errorf("the bucket was made as %+v", c)
	}
	check(t, s.Close())
	if !nc.IsConnected() {
		t.Error("the caller's connection was closed")
	}
}
