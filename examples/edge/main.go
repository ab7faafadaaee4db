// Command edge shows three nodes that share a rate limit over NATS, with a server of
// its own: the tenth request passes, the eleventh does not, whichever node is asked. It
// ends by itself.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/holdfast-io/holdfast/edge"
	"github.com/holdfast-io/holdfast/edge/natslink"
	"github.com/holdfast-io/holdfast/limit"
)

// tenIn30s is the limit of the demo.
var tenIn30s = limit.Rate{Count: 10, Per: 30 * time.Second, Algorithm: limit.FixedWindow}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	info, err := os.Stdout.Stat()
	live := err == nil && info.Mode()&os.ModeCharDevice != 0
	if err := demo(ctx, os.Stdout, live); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// show is a demo under way.
type show struct {
	out      io.Writer
	live     bool // on a terminal: slowly, and one picture over the other
	now      func() time.Time
	nodes    []*edge.Node
	limiters []*edge.Limiter
}

// demo is what `make demo` shows.
func demo(ctx context.Context, out io.Writer, live bool) error {
	nats, end, err := natsServer()
	if err != nil {
		return err
	}
	defer end()
	began := time.Now()
	// The clock begins with a window, so that none ends in the middle of the demo.
	window := began.Truncate(tenIn30s.Per)
	s := &show{out: out, live: live, now: func() time.Time { return window.Add(time.Since(began)) }}
	for i := range 3 {
		stop, err := s.join(ctx, nats, fmt.Sprint("node ", i+1))
		if err != nil {
			return err
		}
		defer stop()
	}
	fmt.Fprintf(out, "Three nodes share a limit of %s over NATS; each decides by itself.\n", tenIn30s)
	return s.scenes(ctx)
}

// natsServer starts a server within this process.
func natsServer() (url string, end func(), err error) {
	dir, err := os.MkdirTemp("", "holdfast-demo")
	if err != nil {
		return "", nil, err
	}
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: dir, NoSigs: true, NoLog: true})
	if err != nil {
		os.RemoveAll(dir)
		return "", nil, err
	}
	end = func() {
		s.Shutdown()
		s.WaitForShutdown()
		os.RemoveAll(dir)
	}
	go s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		end()
		return "", nil, errors.New("the NATS server does not start")
	}
	return s.ClientURL(), end, nil
}

// join adds a node.
func (s *show) join(ctx context.Context, nats, name string) (stop func(), err error) {
	link, err := natslink.Open(ctx, nats, &natslink.Options{Memory: true})
	if err != nil {
		return nil, err
	}
	node, err := edge.Open(edge.Config{Actor: name, Link: link, Flush: 20 * time.Millisecond, Now: s.now})
	if err != nil {
		link.Close()
		return nil, err
	}
	stop = func() {
		node.Close()
		link.Close()
	}
	limiter, err := node.Limiter("requests", edge.LimiterConfig{Rate: tenIn30s})
	if err != nil {
		stop()
		return nil, err
	}
	s.nodes, s.limiters = append(s.nodes, node), append(s.limiters, limiter)
	return stop, nil
}

// scenes are three requests on each node, the tenth, and one too many on each.
func (s *show) scenes(ctx context.Context) error {
	total := int64(0)
	for i := range 3 {
		fmt.Fprintf(s.out, "\n%s takes three requests.\n", s.nodes[i].Actor().Node)
		total += 3
		if err := s.scene(ctx, total, i, i, i); err != nil {
			return err
		}
	}
	fmt.Fprintf(s.out, "\nThe tenth, on %s:\n", s.nodes[0].Actor().Node)
	if err := s.scene(ctx, 10, 0); err != nil {
		return err
	}
	fmt.Fprintf(s.out, "\nOne more on each:\n")
	return s.scene(ctx, 10, 0, 1, 2)
}

// scene asks nodes and shows the picture until all of them know of total.
func (s *show) scene(ctx context.Context, total int64, asked ...int) error {
	for _, i := range asked {
		d, err := s.limiters[i].Take("10.0.0.1", s.now(), 1)
		if err != nil {
			return err
		}
		said := fmt.Sprintf("✓ allowed, %d left", d.Remaining)
		if !d.Allowed {
			said = fmt.Sprintf("✗ denied, try again in %d s", (d.RetryAfter+time.Second-1)/time.Second)
		}
		fmt.Fprintf(s.out, "  %s: %s\n", s.nodes[i].Actor().Node, said)
		if s.live {
			time.Sleep(200 * time.Millisecond)
		}
	}
	return s.converge(ctx, total)
}

// converge shows how the nodes come to agree.
func (s *show) converge(ctx context.Context, total int64) error {
	began := time.Now()
	for first := true; ; first = false {
		picture, agree := s.picture(total)
		if s.live && !first {
			fmt.Fprintf(s.out, "\x1b[%dA", len(s.nodes))
		}
		if s.live || agree {
			fmt.Fprint(s.out, picture)
		}
		if agree {
			fmt.Fprintf(s.out, "  all agree after %d ms\n", time.Since(began).Milliseconds())
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the nodes do not agree: %w", ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// picture has a bar for each node.
func (s *show) picture(total int64) (text string, agree bool) {
	agree = true
	for i, l := range s.limiters {
		n := l.Count("10.0.0.1", s.now())
		agree = agree && n == total
		full := int(min(n, tenIn30s.Count))
		text += fmt.Sprintf("  %s sees %s%s %2d\n", s.nodes[i].Actor().Node, strings.Repeat("█", full), strings.Repeat("░", int(tenIn30s.Count)-full), n)
	}
	return text, agree
}
