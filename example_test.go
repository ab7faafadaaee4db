package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/memhold"
)

var ctx = context.Background()

// Take a turn, work, give it back.
func Example() {
	s := memhold.Open() // or holdfast.Open(ctx, url)
	defer s.Close()

	hold, err := s.Mutex("jobs/nightly").Acquire(ctx) // ctx bounds the wait only
	if err != nil {
		log.Fatal(err)
	}
	defer hold.Release()
	work := func(ctx context.Context, t holdfast.Token) { fmt.Println("working:", ctx.Err() == nil, t > 0) }
	work(hold.Bind(ctx), hold.Token())
	// Output: working: true true
}

// Skip the work if somebody else does it.
func ExampleMutex_TryAcquire() {
	s := memhold.Open(holdfast.Owner("node-7"))
	defer s.Close()
	hold, _ := s.Mutex("jobs/nightly").Acquire(ctx)
	defer hold.Release()

	_, err := s.Mutex("jobs/nightly").TryAcquire(ctx)
	if errors.Is(err, holdfast.ErrHeld) {
		e, _ := errors.AsType[*holdfast.Error](err)
		fmt.Println("held by", e.Holders[0].Owner)
	}
	// Output: held by node-7
}

// Do releases however the function ends, and tells of a loss.
func ExampleMutex_Do() {
	s := memhold.Open()
	defer s.Close()
	err := s.Mutex("accounts/7").Do(ctx, func(ctx context.Context, h *holdfast.Hold) error {
		fmt.Println("held:", h.Err() == nil)
		return errors.New("insufficient funds")
	})
	fmt.Println(err)
	// Output:
	// held: true
	// insufficient funds
}

// A job that must run once a slot, on many replicas whose clocks differ.
func ExampleMinHold() {
	s := memhold.Open()
	defer s.Close()
	cron := s.Mutex("cron/nightly", holdfast.MinHold(time.Minute))
	for replica := range 3 {
		err := cron.TryDo(ctx, func(context.Context, *holdfast.Hold) error {
			fmt.Println("replica", replica, "runs the job")
			return nil
		})
		if !errors.Is(err, holdfast.ErrHeld) && err != nil {
			log.Fatal(err)
		}
	}
	// Output: replica 0 runs the job
}

func ExampleRWMutex_Upgrade() {
	s := memhold.Open()
	defer s.Close()
	config := s.RWMutex("config")
	read, _ := config.Reader().Acquire(ctx)
	defer read.Release() // does nothing once upgraded
	write, err := config.Upgrade(ctx, read)
	if errors.Is(err, holdfast.ErrConflict) {
		return // another reader upgrades: let go and start over
	}
	defer write.Release()
	fmt.Println("newer token:", write.Token() > read.Token())
	fmt.Println(read.Err())
	// Output:
	// newer token: true
	// holdfast: hold "config": released
}

func ExampleSemaphore() {
	s := memhold.Open()
	defer s.Close()
	gpu := s.Semaphore("gpu-memory", 40)
	hold, _ := gpu.Acquire(ctx, 30)
	_, err := gpu.TryAcquire(ctx, 11)
	fmt.Println("room for 11:", err == nil)
	hold.Release()
	_, err = gpu.Acquire(ctx, 41)
	fmt.Println(err)
	// Output:
	// room for 11: false
	// holdfast: acquire "gpu-memory": invalid argument: the weight 41 is above the limit 40 and would wait for ever
}

// All or nothing, without the danger of waiting for each other.
func ExampleSpace_AcquireAll() {
	s := memhold.Open()
	defer s.Close()
	hold, err := s.AcquireAll(ctx, s.Mutex("repo").Want(), s.RWMutex("config").Reader().Want(), s.Semaphore("builders", 4).Want(2))
	if err != nil {
		log.Fatal(err)
	}
	defer hold.Release()
	fmt.Println(hold.Name(), hold.TokenOf("repo") > 0)
	// Output: repo, config, builders true
}

func ExampleElection_Lead() {
	s := memhold.Open(holdfast.Owner("node-7"))
	defer s.Close()
	e := s.Election("scheduler", holdfast.TTL(5*time.Second))
	err := e.Lead(ctx, []byte("10.0.0.7:80"), func(ctx context.Context, l *holdfast.Leadership) error {
		leader, err := e.Leader(ctx)
		fmt.Printf("%s leads at %s\n", leader.Owner, leader.Value)
		return err
	})
	fmt.Println(err)
	// Output:
	// node-7 leads at 10.0.0.7:80
	// <nil>
}

func ExampleCounter() {
	s := memhold.Open()
	defer s.Close()
	orders := s.Counter("orders")
	n, _ := orders.Add(ctx, 3)
	swapped, _ := orders.CompareAndSwap(ctx, 3, 10)
	now, _ := orders.Load(ctx)
	fmt.Println(n, swapped, now)

	stock := s.Counter("stock").Unsigned()
	left, _ := stock.Sub(ctx, 5)
	fmt.Println(left) // stops at 0
	// Output:
	// 3 true 10
	// 0
}

// Count in the process, tell the backend now and then.
func ExampleCounter_Buffered() {
	s := memhold.Open()
	defer s.Close()
	hits := s.Counter("hits").Buffered(1000, time.Second)
	for range 250 {
		if err := hits.Add(1); err != nil {
			log.Fatal(err)
		}
	}
	if err := hits.Close(); err != nil { // flushes
		log.Fatal(err)
	}
	n, _ := s.Counter("hits").Load(ctx)
	fmt.Println(n)
	// Output: 250
}

func ExampleSequence() {
	s := memhold.Open()
	defer s.Close()
	ids := s.Sequence("order-ids", holdfast.BlockSize(100))
	a, _ := ids.Next(ctx)
	b, _ := ids.Next(ctx)
	first, _ := ids.Reserve(ctx, 50) // 50 in a row
	fmt.Println(a, b, first)
	// Output: 1 2 101
}

func ExampleKV_CompareAndSwap() {
	s := memhold.Open()
	defer s.Close()
	kv := s.KV()
	rev, _ := kv.Create(ctx, "config", []byte("v1"))
	_, err := kv.CompareAndSwap(ctx, "config", rev, []byte("v2"))
	fmt.Println(err)
	_, err = kv.CompareAndSwap(ctx, "config", rev, []byte("v3")) // with the old revision
	fmt.Println(errors.Is(err, holdfast.ErrConflict), holdfast.NotDone(err))
	// Output:
	// <nil>
	// true true
}

// Move money only if it is there.
func ExampleKV_Txn() {
	s := memhold.Open()
	defer s.Close()
	kv := s.KV()
	kv.Put(ctx, "from", []byte("10"))
	res, err := kv.Txn(ctx, holdfast.Txn{
		If: []holdfast.Compare{
			holdfast.ValueIs("from", []byte("10")),
			holdfast.Absent("to"),
		},
		Then: []holdfast.Op{holdfast.DeleteOp("from"), holdfast.PutOp("to", []byte("10"))},
		Else: []holdfast.Op{holdfast.GetOp("from")},
	})
	fmt.Println(res.OK, err)
	// Output: true <nil>
}

// Keys and holds that live and die together.
func ExampleSpace_Session() {
	s := memhold.Open()
	defer s.Close()
	ses, err := s.Session(ctx, holdfast.TTL(10*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	s.KV().Put(ctx, "members/node-7", []byte("10.0.0.7:80"), holdfast.Under(ses))
	shard, _ := s.Mutex("shards/3", holdfast.Under(ses)).Acquire(ctx)
	ses.Revoke()
	_, err = s.KV().Get(ctx, "members/node-7")
	fmt.Println(err)
	fmt.Println(shard.Err())
	// Output:
	// holdfast: get "members/node-7": not found
	// holdfast: hold "shards/3": lost: its session was revoked here
}

func ExampleSpace_Watch() {
	s := memhold.Open()
	defer s.Close()
	watch, stop := context.WithCancel(ctx)
	defer stop()
	for ev, err := range s.Watch(watch, "jobs/", 0) {
		if err != nil {
			log.Fatal(err)
		}
		if ev.Verb == "ready" { // everything from here on will be seen
			hold, _ := s.Mutex("jobs/nightly").Acquire(ctx)
			hold.Release()
			continue
		}
		fmt.Println(ev.String(), ev.Name)
		if ev.Verb == "released" {
			break
		}
	}
	// Output:
	// lock:acquired jobs/nightly
	// lock:released jobs/nightly
}

// An operator ends a hold by its token, so that the next holder is never hit.
func ExampleSpace_ForceRelease() {
	s := memhold.Open()
	defer s.Close()
	hold, _ := s.Mutex("jobs/nightly").Acquire(ctx)
	for res, err := range s.List(ctx, "jobs/") {
		if err != nil {
			log.Fatal(err)
		}
		for _, c := range res.Holders {
			if _, err := s.ForceRelease(ctx, res.Name, holdfast.Token(c.Token)); err != nil {
				log.Fatal(err)
			}
		}
	}
	<-hold.Done()
	fmt.Println(errors.Is(hold.Err(), holdfast.ErrLost))
	// Output: true
}

func ExampleReentrant() {
	s := memhold.Open()
	defer s.Close()
	m := s.Mutex("repo", holdfast.Reentrant())
	err := m.Do(ctx, func(ctx context.Context, outer *holdfast.Hold) error {
		return m.Do(ctx, func(_ context.Context, inner *holdfast.Hold) error { // joins: ctx comes from outer
			fmt.Println(inner.Token() == outer.Token())
			return nil
		})
	})
	fmt.Println(err)
	// Output:
	// true
	// <nil>
}

func ExampleRequire() {
	_, err := holdfast.Open(ctx, "mem:", holdfast.Require("fencing", "durable"))
	fmt.Println(errors.Is(err, errors.ErrUnsupported)) // memory forgets
	// Output: true
}
