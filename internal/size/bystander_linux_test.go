package size

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
)

// turns is how long a bystander waits until it takes its lock again.
const turns = 5 * time.Millisecond

// sightings are what a bystander has seen.
type sightings struct {
	Took   []time.Duration // how long turns took, a lock taken and given back
	Failed int             // turns that had an error
	Lost   int             // how often the hold was lost that it has beside
}

// bystander is another program that has nothing to do with the work of a trial.
type bystander struct {
	tb testing.TB
	in io.Writer
	to *json.Decoder
}

// bystander starts one that holds by a TTL; it has its hold and its lock.
func (g *group) bystander(ttl time.Duration) *bystander {
	g.tb.Helper()
	cmd := played(g.tb, bystanderRole, g.url(), ttl.String())
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	done(g.tb, err)
	out, err := cmd.StdoutPipe()
	done(g.tb, err)
	done(g.tb, cmd.Start())
	g.tb.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	b := &bystander{g.tb, in, json.NewDecoder(out)}
	b.tells()
	return b
}

// tells is what it has seen since it was asked last. It ends its turn before.
func (b *bystander) tells() (s sightings) {
	b.tb.Helper()
	_, err := io.WriteString(b.in, "\n")
	done(b.tb, err)
	done(b.tb, b.to.Decode(&s))
	return s
}

// during is what it sees while f runs.
func (b *bystander) during(f func()) sightings {
	b.tb.Helper()
	b.tells()
	f()
	return b.tells()
}

// bystand is the bystander's own process. Each line on its input asks what it has seen; it
// ends with that.
func bystand(url, ttl string) (code int) {
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			asked <- struct{}{}
		}
	}()
	p, err := newPasserBy(url, ttl)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bystander:", err)
		return 1
	}
	p.run(asked)
	return 0
}

// passerBy is a bystander in its own process.
type passerBy struct {
	held, small *holdfast.Mutex
	hold        *holdfast.Hold
	seen        sightings
}

func newPasserBy(url, ttl string) (*passerBy, error) {
	d, err := time.ParseDuration(ttl)
	if err != nil {
		return nil, err
	}
	s, err := holdfast.Open(context.Background(), url)
	if err != nil {
		return nil, err
	}
	p := &passerBy{held: s.Mutex("bystander/held", holdfast.TTL(d)), small: s.Mutex("bystander/small")}
	if p.hold, err = p.held.Acquire(context.Background()); err != nil {
		return nil, err
	}
	p.turn()
	p.seen = sightings{}
	return p, nil
}

func (p *passerBy) run(asked <-chan struct{}) {
	for {
		select {
		case _, more := <-asked:
			if !more {
				return
			}
			_ = json.NewEncoder(os.Stdout).Encode(p.seen) // otherwise the asker has gone
			p.seen = sightings{}
		case <-time.After(turns):
			p.turn()
		}
	}
}

// turn takes the lock and gives it back. Others that would have been due meanwhile count
// with the rest of the time: else a node that stands still would be seen by one turn only.
func (p *passerBy) turn() {
	began := time.Now()
	if err := p.small.Do(context.Background(), func(context.Context, *holdfast.Hold) error { return nil }); err != nil {
		p.seen.Failed++
	}
	for took := time.Since(began); took > 0; took -= turns {
		p.seen.Took = append(p.seen.Took, took)
	}
	if p.hold.Err() != nil {
		p.seen.Lost++
		if again, err := p.held.Acquire(context.Background()); err == nil {
			p.hold = again
		}
	}
}
