package natshold_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/drivertest"
	"github.com/holdfast-io/holdfast/internal/services"
	"github.com/holdfast-io/holdfast/natshold"
)

// buckets are those that there are: how they are made, and how keys are removed
// from them differs.
var buckets = map[string]func(js nats.JetStreamContext) error{
	"ours": func(nats.JetStreamContext) error { return nil },
	"tools": func(js nats.JetStreamContext) error {
		return second(js.CreateKeyValue(&nats.KeyValueConfig{Bucket: "tools", History: 5}))
	},
}

// sweeper is a driver that sweeps what has just been used.
func sweeper(t *testing.T, nc *nats.Conn, bucket string) driver.Driver {
	t.Helper()
	d := must(natshold.New(t.Context(), nc, natshold.SweepAtOnce(&natshold.Options{Bucket: bucket})))(t)
	t.Cleanup(func() { _ = d.Close(context.Background()) })
	return d
}

// sweeperAt is one with a connection of its own.
func sweeperAt(t *testing.T, url string) driver.Driver {
	t.Helper()
	return must(answered(func() (driver.Driver, error) { return natshold.OpenToSweepAtOnce(t.Context(), url) }))(t)
}

// A sweep leaves nothing of very many idle names, and of keys, counters and
// sequences that were deleted; what is in use stays, and tokens grow.
func TestSweep(t *testing.T) {
	server := services.NATS(t)
	nc := connect(t, server.URL())
	js := streams(t, nc)
	for bucket, prepare := range buckets {
		check(t, prepare(js))
		s := open(t, server.URL()+"/"+bucket)
		const names = 1000 // given back in less than the minute after which their own program removes them
		last := make([]holdfast.Token, names)
		for i := range names {
			h := must(s.Mutex(fmt.Sprint("jobs/", i)).Acquire(t.Context()))(t)
			last[i] = h.Token()
			check(t, h.Release())
		}
		held := must(s.Mutex("held").Acquire(t.Context()))(t)
		must(s.Counter("stays").Add(t.Context(), 1))(t)
		must(s.KV().Put(t.Context(), "goes", nil))(t)
		must(s.KV().Delete(t.Context(), "goes"))(t)
		must(s.Counter("goes").Add(t.Context(), 1))(t)
		check(t, s.Counter("goes").Delete(t.Context()))
		d := sweeper(t, nc, bucket)
		if reply := must(d.Sweep(t.Context(), &driver.SweepRequest{Prefix: "jobs/7"}))(t); reply.Removed != 111 {
			t.Errorf("%s: %d names with a prefix were swept", bucket, reply.Removed)
		}
		if reply := must(d.Sweep(t.Context(), &driver.SweepRequest{}))(t); reply.Removed != names-111+2 {
			t.Errorf("%s: %d names were swept", bucket, reply.Removed)
		}
		if n := must(js.StreamInfo("KV_" + bucket))(t).State.NumSubjects; n != 3 { // the mark, the counter and the lock that is held
			t.Errorf("%s: %d keys are left", bucket, n)
		}
		check(t, held.Err())
		if err := second(s.Mutex("held").TryAcquire(t.Context())); !errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("%s: what is held: %v", bucket, err)
		}
		for i := 0; i < names; i += 50 {
			if h := must(s.Mutex(fmt.Sprint("jobs/", i)).Acquire(t.Context()))(t); h.Token() <= last[i] {
				t.Errorf("%s: after the token %d came %d", bucket, last[i], h.Token())
			}
		}
	}
}

// The suite's promises about sweeps, with one that leaves nothing alone because it
// is young.
func TestConformance_Sweep(t *testing.T) {
	server := services.NATS(t)
	nc := connect(t, server.URL())
	for bucket, prepare := range buckets {
		check(t, prepare(streams(t, nc)))
		h := drivertest.URL(server.URL() + "/" + bucket)
		h.Driver = func(ctx context.Context) (driver.Driver, error) {
			return natshold.New(ctx, nc, natshold.SweepAtOnce(&natshold.Options{Bucket: bucket}))
		}
		h.Select = func(c drivertest.Case) bool { return strings.HasPrefix(c.Name, "Sweep/") }
		t.Run(bucket, func(t *testing.T) { drivertest.Run(t, h) })
	}
}

// What was used in the last minute is left alone: its user may ask again
// whether it was done.
func TestSweep_Young(t *testing.T) {
	server := services.SharedNATS(t)
	s := open(t, server.URL()+"/young")
	check(t, must(s.Mutex("m").Acquire(t.Context()))(t).Release())
	d := must(natshold.New(t.Context(), connect(t, server.URL()), &natshold.Options{Bucket: "young"}))(t)
	defer d.Close(t.Context())
	if reply := must(d.Sweep(t.Context(), &driver.SweepRequest{}))(t); reply.Removed != 0 {
		t.Errorf("%d names were swept", reply.Removed)
	}
}

// A bucket, or a user, that cannot be swept says why.
func TestSweep_Refused(t *testing.T) {
	server := services.NATS(t, services.Setting("authorization", rights))
	full := connect(t, strings.TrimSuffix(as(server.URL(), "full"), "/b"))
	s := open(t, as(server.URL(), "full"))
	check(t, must(s.Mutex("m").Acquire(t.Context()))(t).Release())
	d := sweeperAt(t, as(server.URL(), "user"))
	defer d.Close(t.Context())
	if _, err := d.Sweep(t.Context(), &driver.SweepRequest{}); !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "$JS.API.STREAM.MSG.DELETE.KV_b") {
		t.Errorf("without the right: %v", err)
	}
	must(streams(t, full).AddStream(&nats.StreamConfig{Name: "KV_stone", Subjects: []string{"$KV.stone.>"}, MaxMsgsPerSubject: 2, Discard: nats.DiscardNew, FirstSeq: 7, DenyPurge: true, DenyDelete: true}))(t)
	stone := sweeper(t, full, "stone")
	h := must(must(holdfast.New(stone))(t).Mutex("m").Acquire(t.Context()))(t)
	check(t, h.Release())
	if _, err := stone.Sweep(t.Context(), &driver.SweepRequest{}); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "deny_purge, deny_delete") {
		t.Errorf("a bucket of which nothing can be removed: %v", err)
	}
}

// Sweeps at the same time remove the same keys, and none of them fails by what another has
// removed before it.
func TestSweep_Together(t *testing.T) {
	server := services.NATS(t)
	nc := connect(t, server.URL())
	for bucket, prepare := range buckets {
		check(t, prepare(streams(t, nc)))
		s, d := open(t, server.URL()+"/"+bucket), sweeper(t, nc, bucket)
		for i := range 200 {
			check(t, must(s.Mutex(fmt.Sprint("jobs/", i)).Acquire(t.Context()))(t).Release())
		}
		errs := make([]error, 8)
		var all sync.WaitGroup
		for i := range errs {
			all.Go(func() { errs[i] = second(d.Sweep(t.Context(), &driver.SweepRequest{})) })
		}
		all.Wait()
		check(t, errors.Join(errs...))
	}
}

// A sweep by a program that comes later removes the keys that have expired, and those
// alone.
func TestSweepExpired(t *testing.T) {
	server := services.NATS(t)
	nc := connect(t, server.URL())
	s := open(t, server.URL()+"/b")
	for i := range 100 {
		must(s.KV().Put(t.Context(), fmt.Sprint("short/", i), nil, holdfast.Expire(time.Second)))(t)
	}
	must(s.KV().Put(t.Context(), "long", nil, holdfast.Expire(time.Hour)))(t)
	held := must(s.Mutex("held").Acquire(t.Context()))(t)
	d := sweeper(t, nc, "b")
	var removed int64
	for removed < 100 && t.Context().Err() == nil {
		removed += must(d.Sweep(t.Context(), &driver.SweepRequest{}))(t).Removed
		_ = d.Close(t.Context())
		d = sweeper(t, nc, "b") // has seen nothing
	}
	must(s.KV().Get(t.Context(), "long"))(t)
	check(t, held.Err())
	if err := second(s.Mutex("held").TryAcquire(t.Context())); removed != 100 || !errors.Is(err, holdfast.ErrHeld) {
		t.Errorf("%d were swept; what is held: %v", removed, err)
	}
}
