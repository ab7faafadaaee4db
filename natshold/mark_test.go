package natshold_test

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/services"
	"github.com/holdfast-io/holdfast/natshold"
)

// alter changes the set-up of a bucket.
func alter(t *testing.T, js nats.JetStreamContext, stream string, change func(*nats.StreamConfig)) {
	t.Helper()
	cfg := must(js.StreamInfo(stream))(t).Config
	change(&cfg)
	must(js.UpdateStream(&cfg))(t)
}

// Promise: tokens grow for ever, also when the bucket is removed and made anew, by
// Open or by the tools of NATS, and however soon.
func TestTokensOutliveTheBucket(t *testing.T) {
	server := services.NATS(t)
	js := streams(t, connect(t, server.URL()))
	// With the last stream the server removes directories, also under one being made.
	must(js.AddStream(&nats.StreamConfig{Name: "other", Subjects: []string{"other"}}))(t)
	make := map[string]func(){
		"by Open":          func() {},
		"by Open, again":   func() {},
		"by tools":         func() { must(js.CreateKeyValue(&nats.KeyValueConfig{Bucket: "b", History: 5}))(t) },
		"by tools, memory": func() { must(js.CreateKeyValue(&nats.KeyValueConfig{Bucket: "b", Storage: nats.MemoryStorage}))(t) },
	}
	var last holdfast.Token
	for _, who := range []string{"by tools", "by Open", "by tools, memory", "by Open, again"} {
		make[who]()
		s := open(t, server.URL()+"/b")
		for range 20 {
			h := must(s.Mutex("m").Acquire(t.Context()))(t)
			if h.Token() <= last {
				t.Errorf("made %s: after the token %d came %d", who, last, h.Token())
			}
			last = h.Token()
			check(t, h.Release())
		}
		check(t, s.Close())
		check(t, js.DeleteStream("KV_b"))
	}
	if first := uint64(time.Now().Add(-time.Hour).Unix()) << 20; uint64(last) < first || last >= 1<<53 {
		t.Errorf("the token is %d", last)
	}
}

// Programs that open a bucket of the tools at once, for the first time, do not
// purge what another has just taken.
func TestFirstUseTogether(t *testing.T) {
	server := services.NATS(t)
	js := streams(t, connect(t, server.URL()))
	for i := range 10 {
		bucket := fmt.Sprint("b", i)
		must(js.CreateKeyValue(&nats.KeyValueConfig{Bucket: bucket, History: 5}))(t)
		held := make(chan error, 8)
		for range cap(held) {
			go func() {
				s, err := answered(func() (*holdfast.Space, error) { return holdfast.Open(t.Context(), server.URL()+"/"+bucket) })
				if err == nil {
					_, err = s.Counter("c").Add(t.Context(), 1)
					err = errors.Join(err, s.Close())
				}
				held <- err
			}()
		}
		for range cap(held) {
			check(t, <-held)
		}
		if n := must(open(t, server.URL()+"/"+bucket).Counter("c").Load(t.Context()))(t); n != int64(cap(held)) {
			t.Errorf("%d were counted", n)
		}
	}
}

// Promise: what a limit that somebody sets later, or a purge, takes from the bucket
// is granted to nobody, and holds end with the setting named.
func TestBucketForgets(t *testing.T) {
	server := services.NATS(t)
	js := streams(t, connect(t, server.URL()))
	for name, f := range map[string]struct {
		forget func(stream string)
		says   string
	}{
		"age": {func(stream string) {
			alter(t, js, stream, func(c *nats.StreamConfig) { c.MaxAge = 500 * time.Millisecond; c.Duplicates = 100 * time.Millisecond })
		}, "max_age"},
		"messages": {func(stream string) {
			alter(t, js, stream, func(c *nats.StreamConfig) { c.Discard, c.MaxMsgs = nats.DiscardOld, 1 })
		}, "max_msgs"},
		"bytes": {func(stream string) {
			alter(t, js, stream, func(c *nats.StreamConfig) { c.Discard, c.MaxBytes = nats.DiscardOld, 1 })
		}, "max_bytes"},
		"purge": {func(stream string) { check(t, js.PurgeStream(stream)) }, "purged"},
		"a while": {func(stream string) {
			alter(t, js, stream, func(c *nats.StreamConfig) { c.Discard, c.MaxMsgs = nats.DiscardOld, 1 })
			alter(t, js, stream, func(c *nats.StreamConfig) { c.Discard, c.MaxMsgs = nats.DiscardNew, -1 })
		}, "max_msgs"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bucket := strings.ReplaceAll(name, " ", "-")
			must(js.CreateKeyValue(&nats.KeyValueConfig{Bucket: bucket, History: 5}))(t)
			a, b := open(t, server.URL()+"/"+bucket), open(t, server.URL()+"/"+bucket)
			h := must(a.Mutex("m", holdfast.TTL(9*time.Second)).Acquire(t.Context()))(t) // no pause of a busy machine ends it
			must(a.KV().Put(t.Context(), "k", nil))(t)
			f.forget("KV_" + bucket)
			var err error
			eventually(t, "the lock is held for ever", func() bool {
				next, failed := b.Mutex("m").TryAcquire(t.Context())
				if failed == nil && h.Err() == nil {
					t.Errorf("two hold it, with %d and %d", h.Token(), next.Token())
				}
				err = failed
				return !errors.Is(err, holdfast.ErrHeld)
			})
			if !errors.Is(err, holdfast.ErrUnavailable) || !strings.Contains(err.Error(), f.says) {
				t.Errorf("another is told %v; want %q", err, f.says)
			}
			<-h.Done()
			if why := h.Err(); !errors.Is(why, holdfast.ErrLost) || !strings.Contains(why.Error(), f.says) {
				t.Errorf("the hold ends with %v; want %q", why, f.says)
			}
			if err := second(b.Counter("c").Add(t.Context(), 1)); !strings.Contains(fmt.Sprint(err), f.says) {
				t.Errorf("a counter: %v", err)
			}
		})
	}
}

// A bucket that Open made cannot be purged, whole or in part.
func TestBucketCannotBePurged(t *testing.T) {
	server := services.SharedNATS(t)
	js := streams(t, connect(t, server.URL()))
	open(t, server.URL()+"/nopurge")
	for what, err := range map[string]error{
		"whole": js.PurgeStream("KV_nopurge"),
		"a key": js.PurgeStream("KV_nopurge", &nats.StreamPurgeRequest{Subject: "$KV.nopurge.l.m"}),
	} {
		if err == nil {
			t.Errorf("%s was purged", what)
		}
	}
}

// A bucket that was purged is not one that was never used: a client that opens it is refused,
// and told what to do.
func TestOpen_PurgedBucket(t *testing.T) {
	server := services.NATS(t)
	js := streams(t, connect(t, server.URL()))
	must(js.CreateKeyValue(&nats.KeyValueConfig{Bucket: "b", History: 5}))(t)
	s := open(t, server.URL()+"/b")
	must(s.Counter("c").Add(t.Context(), 1))(t)
	check(t, js.PurgeStream("KV_b"))
	refuses(t, server.URL()+"/b", holdfast.ErrUnavailable, "was purged", "delete it")
	must(js.CreateKeyValue(&nats.KeyValueConfig{Bucket: "old", History: 5}))(t)
	must(js.Publish("$KV.old.c.c", []byte(`{"value":"7"}`)))(t)
	check(t, js.PurgeStream("KV_old"))
	refuses(t, server.URL()+"/old", holdfast.ErrUnavailable, "was purged")
}

// A bucket of before there were marks is taken over as it is.
func TestVersion_Unmarked(t *testing.T) {
	server := services.NATS(t)
	js := streams(t, connect(t, server.URL()))
	must(js.CreateKeyValue(&nats.KeyValueConfig{Bucket: "b", History: 5}))(t)
	must(js.Publish("$KV.b.c.c", []byte(`{"value":"7"}`)))(t)
	must(js.Publish("$KV.b.l.m", []byte(`{"token":1}`)))(t)
	s := open(t, server.URL()+"/b")
	if n := must(s.Counter("c").Add(t.Context(), 1))(t); n != 8 {
		t.Errorf("the counter is %d", n)
	}
	if h := must(s.Mutex("m").TryAcquire(t.Context()))(t); h.Token() <= 2 {
		t.Errorf("the token is %d", h.Token())
	}
	must(open(t, server.URL()+"/b").Counter("c").Add(t.Context(), 1))(t)
}

// Two versions side by side: the newer one takes the bucket over; the older one is
// told so soon, its holds end, and it cannot be opened any more.
func TestVersion_SideBySide(t *testing.T) {
	server := services.NATS(t)
	old := open(t, server.URL()+"/b")
	h := must(old.Mutex("m", holdfast.TTL(9*time.Second)).Acquire(t.Context()))(t) // no pause of a busy machine ends it
	newer := natshold.Newer(&natshold.Options{Bucket: "b"})
	d := must(natshold.New(t.Context(), connect(t, server.URL()), newer))(t)
	s := must(holdfast.New(d))(t)
	defer s.Close()
	must(s.Counter("c").Add(t.Context(), 1))(t)
	eventually(t, "the older program is told nothing", func() bool { return second(old.Counter("c").Add(t.Context(), 1)) != nil })
	<-h.Done()
	for what, err := range map[string]error{
		"a change": second(old.Counter("c").Add(t.Context(), 1)),
		"the hold": h.Err(),
	} {
		if !strings.Contains(err.Error(), "is of version 2") || !strings.Contains(err.Error(), "update it") {
			t.Errorf("%s: %v", what, err)
		}
	}
	refuses(t, server.URL()+"/b", errors.ErrUnsupported, "is of version 2", "update it")
	next := must(s.Mutex("m").Acquire(t.Context()))(t)
	if next.Token() <= h.Token() {
		t.Errorf("after the token %d came %d", h.Token(), next.Token())
	}
}

// A mark that somebody deletes or writes is no mark.
func TestVersion_BadMark(t *testing.T) {
	server := services.NATS(t)
	js := streams(t, connect(t, server.URL()))
	for name, spoil := range map[string]func(kv nats.KeyValue) error{
		"deleted": func(kv nats.KeyValue) error { return kv.Delete("holdfast") },
		"theirs":  func(kv nats.KeyValue) error { return second(kv.PutString("holdfast", "theirs")) },
	} {
		s := open(t, server.URL()+"/"+name)
		check(t, spoil(must(js.KeyValue(name))(t)))
		if err := second(s.Mutex("m").TryAcquire(t.Context())); !errors.Is(err, holdfast.ErrUnavailable) || !strings.Contains(err.Error(), `"holdfast"`) {
			t.Errorf("%s: %v", name, err)
		}
		refuses(t, server.URL()+"/"+name, holdfast.ErrUnavailable, `"holdfast"`)
	}
}

// A bucket that was never used cannot be begun by a user without the right, and is
// not begun with tokens that may repeat.
func TestRights_FirstUse(t *testing.T) {
	server := services.NATS(t, services.Setting("authorization", rights))
	js := streams(t, connect(t, strings.TrimSuffix(as(server.URL(), "full"), "/b")))
	must(js.CreateKeyValue(&nats.KeyValueConfig{Bucket: "b", History: 5}))(t)
	refuses(t, as(server.URL(), "user"), fs.ErrPermission, "never used", "$JS.API.STREAM.PURGE.KV_b")
	open(t, as(server.URL(), "full"))
	open(t, as(server.URL(), "user"))
}

// Every setting that breaks a promise is refused by its name.
func TestUnfitSettings(t *testing.T) {
	server := services.NATS(t)
	js := streams(t, connect(t, server.URL()))
	for says, spoil := range map[string]func(*nats.StreamConfig){
		"max_age":                 func(c *nats.StreamConfig) { c.MaxAge = time.Hour },
		"max_bytes":               func(c *nats.StreamConfig) { c.Discard, c.MaxBytes = nats.DiscardOld, 1<<20 },
		"max_msgs":                func(c *nats.StreamConfig) { c.Discard, c.MaxMsgs = nats.DiscardOld, 1000 },
		"retention":               func(c *nats.StreamConfig) { c.Retention = nats.InterestPolicy },
		"discard_new_per_subject": func(c *nats.StreamConfig) { c.DiscardNewPerSubject = true },
		"max_msgs_per_subject":    func(c *nats.StreamConfig) { c.MaxMsgsPerSubject = -1 },
		"no_ack":                  func(c *nats.StreamConfig) { c.NoAck = true },
	} {
		cfg := &nats.StreamConfig{Name: "KV_" + says, Subjects: []string{"$KV." + says + ".>"}, MaxMsgsPerSubject: 5, Discard: nats.DiscardNew}
		spoil(cfg)
		must(js.AddStream(cfg))(t)
		refuses(t, server.URL()+"/"+says, fs.ErrInvalid, says, "use another")
	}
}
