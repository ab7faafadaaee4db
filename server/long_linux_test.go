package server_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/server"
)

var loadFor = flag.Duration("server.load", 30*time.Second, "how long BenchmarkMemory loads a node")

func init() { roles["filled"], roles["loaded"] = filledChild, loadedChild }

// million is how many commands BenchmarkRecover has a node find.
const million = 1_000_000

// filledChild gives a node a million commands and waits to be killed.
func filledChild() error {
	srv, err := server.New(server.Config{Dir: os.Getenv("SERVER_TEST_DIR")})
	if err != nil {
		return err
	}
	newWire(srv, 20).fill(million)
	fmt.Println("filled")
	untilOrphaned()
	return nil
}

// loadedChild keeps a node as busy as it can be.
func loadedChild() error {
	go untilOrphaned()
	srv, err := server.New(server.Config{Dir: os.Getenv("SERVER_TEST_DIR")})
	if err != nil {
		return err
	}
	w := newWire(srv, proposers)
	fmt.Println("loaded")
	for {
		_, speed := burst(w.work)
		fmt.Println(speed)
	}
}

// BenchmarkRecover starts a node on a directory on which another was killed after
// a million commands, until it serves.
func BenchmarkRecover(b *testing.B) {
	dir := b.TempDir()
	p := spawn(b, "filled", "SERVER_TEST_DIR="+dir)
	if line := p.line(); line != "filled" {
		b.Fatal(line)
	}
	p.kill()
	var took []time.Duration
	for b.Loop() {
		begin := time.Now()
		srv, err := server.New(server.Config{Dir: dir})
		if err != nil {
			b.Fatal(err)
		}
		for !serves(srv) {
		}
		took = append(took, time.Since(begin))
		st, _ := srv.Status(b.Context())
		if st.Revision < million/2 { // every grant has one
			b.Fatalf("the node has found %d revisions", st.Revision)
		}
		if err := srv.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(median(took).Seconds(), "recover-s")
}

// BenchmarkMemory is the memory of a node under full load at the end, to that
// after a fifth of the time.
func BenchmarkMemory(b *testing.B) {
	for b.Loop() {
		p := spawn(b, "loaded", "SERVER_TEST_DIR="+b.TempDir())
		p.line()
		var speeds []float64
		var early, late int64
		for begin := time.Now(); time.Since(begin) < *loadFor; {
			var speed float64
			_, _ = fmt.Sscan(p.line(), &speed)
			speeds = append(speeds, speed)
			now := resident(b, p)
			switch past := time.Since(begin); {
			case past > *loadFor/10 && past <= *loadFor/5:
				early = max(early, now)
			case past > *loadFor*9/10:
				late = max(late, now)
			}
		}
		p.kill()
		b.ReportMetric(float64(late)/float64(early), "late/early")
		b.ReportMetric(float64(late)/(1<<20), "MiB")
		b.Logf("proof: %s of full load, %.0f commands a second: %d MiB at a fifth of the time, %d MiB at the end", *loadFor, median(slices.Clone(speeds)), early>>20, late>>20)
	}
}

// resident is the memory that a process has, in bytes.
func resident(b *testing.B, p *process) int64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.cmd.Process.Pid))
	if err != nil {
		b.Fatal(err)
	}
	var size, pages int64
	if _, err := fmt.Fscan(strings.NewReader(string(text)), &size, &pages); err != nil {
		b.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}
