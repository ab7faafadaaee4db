// Command tour shows what Holdfast does, on files, with real processes: taking
// turns, a holder that is killed, and a stale write that only a token can stop.
// It ends by itself.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/fence"
	"github.com/holdfast-io/holdfast/filehold"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	run := tour
	if len(os.Args) == 4 {
		run = func(ctx context.Context) error { return child(ctx, os.Args[1], os.Args[2], os.Args[3]) }
	}
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// tour is what `make tour` shows.
func tour(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "holdfast-tour")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for i, step := range []func(context.Context, string) error{turns, killed, counted} {
		if i > 0 {
			fmt.Println()
		}
		if err := step(ctx, dir); err != nil {
			return err
		}
	}
	fmt.Println("\nThe same program runs in memory, on PostgreSQL or on Redis by its URL.")
	return nil
}

// child is another process of the tour.
func child(ctx context.Context, what, name, dir string) error {
	s, err := filehold.Open(dir, holdfast.Owner(name))
	if err != nil {
		return err
	}
	defer s.Close()
	switch what {
	case "turns":
		return takeTurns(ctx, s, name)
	case "hang":
		return hang(ctx, s)
	}
	return errors.New("unknown part " + what)
}

func takeTurns(ctx context.Context, s *holdfast.Space, name string) error {
	for range 3 {
		err := s.Mutex("printer").Do(ctx, func(_ context.Context, h *holdfast.Hold) error {
			fmt.Printf("%s (process %d) holds the printer, token %d\n", name, os.Getpid(), h.Token())
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// hang takes the ledger and never gives it back.
func hang(ctx context.Context, s *holdfast.Space) error {
	h, err := s.Mutex("ledger").Acquire(ctx)
	if err != nil {
		return err
	}
	fmt.Println(h.Token())
	<-ctx.Done()
	return ctx.Err()
}

// start runs a part of the tour in another process.
func start(what, name, dir string) (*exec.Cmd, io.Reader, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	cmd := exec.Command(self, what, name, dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	return cmd, out, cmd.Start()
}

func turns(_ context.Context, dir string) error {
	fmt.Println("Two processes take turns; the token grows from grant to grant")
	var outs []io.Reader
	var cmds []*exec.Cmd
	for _, name := range []string{"ann", "bob"} {
		cmd, out, err := start("turns", name, dir)
		if err != nil {
			return err
		}
		cmds, outs = append(cmds, cmd), append(outs, out)
	}
	for i, out := range outs {
		text, err := io.ReadAll(out)
		if err := errors.Join(err, cmds[i].Wait()); err != nil {
			return err
		}
		for line := range strings.Lines(string(text)) {
			fmt.Print("  ", line)
		}
	}
	return nil
}

// killed shows that the kernel frees what a killed process held, and that its
// late write is refused by its token.
func killed(ctx context.Context, dir string) error {
	fmt.Println("A holder is killed; the next waiter is granted, and the late write of the killed one is refused")
	cmd, out, err := start("hang", "ann", dir)
	if err != nil {
		return err
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return err
	}
	stale, err := fence.ParseToken(strings.TrimSpace(line))
	if err != nil {
		return err
	}
	return inherit(ctx, dir, cmd, uint64(stale))
}

// inherit has bob take the ledger from ann, whose process is killed.
func inherit(ctx context.Context, dir string, cmd *exec.Cmd, stale uint64) error {
	s, err := filehold.Open(dir, holdfast.Owner("bob"))
	if err != nil {
		return err
	}
	defer s.Close()
	if _, err := s.Mutex("ledger").TryAcquire(ctx); !errors.Is(err, holdfast.ErrHeld) {
		return fmt.Errorf("bob should have been refused: %w", err)
	} else {
		fmt.Println("  bob:", err)
	}
	if err := cmd.Process.Kill(); err != nil {
		return err
	}
	began := time.Now()
	hold, err := s.Mutex("ledger").Acquire(ctx)
	if err != nil {
		return err
	}
	defer hold.Release()
	fmt.Printf("  ann is killed; bob holds it %s later with token %d\n", time.Since(began).Round(100*time.Microsecond), hold.Token())
	var gate fence.Gate
	if err := gate.Check("ledger", hold.Token(), fence.Exclusive); err != nil {
		return err
	}
	err = gate.Check("ledger", fence.Token(stale), fence.Exclusive)
	if !errors.Is(err, holdfast.ErrStale) {
		return fmt.Errorf("the stale write should have been refused: %w", err)
	}
	fmt.Println("  ann's late write:", err)
	return nil
}

func counted(ctx context.Context, dir string) error {
	fmt.Println("Counters, sequences and elections, on the same directory")
	s, err := filehold.Open(dir)
	if err != nil {
		return err
	}
	defer s.Close()
	n, err := s.Counter("orders").Add(ctx, 42)
	if err != nil {
		return err
	}
	id, err := s.Sequence("order-ids").Next(ctx)
	if err != nil {
		return err
	}
	lead, err := s.Election("scheduler").Campaign(ctx, []byte("10.0.0.7:80"))
	if err != nil {
		return err
	}
	defer lead.Resign()
	leader, err := s.Election("scheduler").Leader(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("  %d orders, the next id is %d, the scheduler is at %s\n", n, id, leader.Value)
	return nil
}
