// Command tour shows what Holdfast does, in memory, in a few lines: taking
// turns, a loss that its holder learns of first, and what only a token can stop.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/holdfast-io/holdfast"
	_ "github.com/holdfast-io/holdfast/memhold"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := tour(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// tour opens two clients of one store, as two programs would.
func tour(ctx context.Context) error {
	ann, err := holdfast.Open(ctx, "mem://tour", holdfast.Owner("ann"))
	if err != nil {
		return err
	}
	defer ann.Close()
	bob, err := holdfast.Open(ctx, "mem://tour", holdfast.Owner("bob"))
	if err != nil {
		return err
	}
	defer bob.Close()
	for i, step := range []func(context.Context, *holdfast.Space, *holdfast.Space) error{turns, pool, counting, elect, crash} {
		if i > 0 {
			fmt.Println()
		}
		if err := step(ctx, ann, bob); err != nil {
			return err
		}
	}
	fmt.Println("\nEverything above ran in this process. The same program runs on other backends by its URL.")
	return nil
}

func turns(ctx context.Context, ann, bob *holdfast.Space) error {
	fmt.Println("Taking turns: a mutex, with a token that grows from grant to grant")
	hold, err := ann.Mutex("jobs/nightly").Acquire(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("  ann holds %s with token %d\n", hold.Name(), hold.Token())
	_, err = bob.Mutex("jobs/nightly").TryAcquire(ctx)
	if !errors.Is(err, holdfast.ErrHeld) {
		return fmt.Errorf("bob should have been refused: %w", err)
	}
	fmt.Println("  bob:", err)
	if err := hold.Release(); err != nil {
		return err
	}
	return bob.Mutex("jobs/nightly").Do(ctx, func(_ context.Context, h *holdfast.Hold) error {
		fmt.Printf("  bob holds it now, with token %d\n", h.Token())
		return nil
	})
}

func pool(ctx context.Context, ann, bob *holdfast.Space) error {
	fmt.Println("Sharing: a semaphore of 40, taken by weight; and several names in one step")
	hold, err := ann.AcquireAll(ctx, ann.Semaphore("gpu-memory", 40).Want(24), ann.RWMutex("models").WantRead())
	if err != nil {
		return err
	}
	defer hold.Release()
	r, err := bob.Inspect(ctx, "gpu-memory")
	if err != nil {
		return err
	}
	fmt.Printf("  bob sees %d of %d taken by %s\n", r.Used, r.Limit, r.Holders[0].Owner)
	return nil
}

func counting(ctx context.Context, ann, bob *holdfast.Space) error {
	fmt.Println("Counting: exact counters, and numbers that nobody else gets")
	if _, err := ann.Counter("orders").Add(ctx, 41); err != nil {
		return err
	}
	n, err := bob.Counter("orders").Add(ctx, 1)
	if err != nil {
		return err
	}
	first, err := ann.Sequence("order-ids").Next(ctx)
	if err != nil {
		return err
	}
	second, err := bob.Sequence("order-ids").Next(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("  orders: %d; ann's next id is %d, bob's %d\n", n, first, second)
	return nil
}

func elect(ctx context.Context, ann, bob *holdfast.Space) error {
	fmt.Println("Leading: an election with a value, handed over by its leader")
	lead, err := ann.Election("scheduler").Campaign(ctx, []byte("10.0.0.7:80"))
	if err != nil {
		return err
	}
	leader, err := bob.Election("scheduler").Leader(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("  bob finds %s at %s\n", leader.Owner, leader.Value)
	return lead.Resign()
}

// crash loses a hold: ann stops renewing, as if her program hung.
func crash(ctx context.Context, ann, bob *holdfast.Space) error {
	fmt.Println("Losing: ann stops renewing her hold of one second; bob waits for it")
	hold, err := ann.Mutex("ledger", holdfast.TTL(time.Second), holdfast.ManualRenew()).Acquire(ctx)
	if err != nil {
		return err
	}
	next, err := bob.Mutex("ledger").Acquire(ctx)
	if err != nil {
		return err
	}
	defer next.Release()
	fmt.Printf("  when bob is granted, ann already knows: %v\n", hold.Err())
	fmt.Printf("  ann's token was %d, bob's is %d: whatever ann still writes can be refused\n", hold.Token(), next.Token())
	return nil
}
