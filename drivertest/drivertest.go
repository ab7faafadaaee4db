// Package drivertest checks that a backend keeps the promises of package
// holdfast, each as a case of its own with the promise in one sentence.
//
// In a backend's own tests:
//
//	func TestConformance(t *testing.T) {
//		drivertest.Run(t, drivertest.Harness{Open: openClient})
//	}
//
// Outside of go test, against a running system, [Check] does the same and
// returns an error; [URL] makes the Harness of anything that holdfast.Open
// opens.
//
// What a backend declares in its Info is tested; what it does not declare is
// tested to be refused with errors.ErrUnsupported; and what [Required] demands
// of its URL scheme it has to declare. Cases use names of their own, so that
// they run beside each other, and beside other work, on one store.
package drivertest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

// Case is one promise and the check of it.
type Case struct {
	// Name is group and case, such as "Mutex/CancelLeavesQueue".
	Name string
	// Promise is what a backend keeps, in one sentence.
	Promise string
	// Needs are the features without which there is nothing to check.
	Needs []driver.Feature
	// Lacks, if set, is the feature whose absence is checked.
	Lacks driver.Feature
	// Uses are the abilities of the Harness without which it cannot be checked.
	Uses Ability
	// Alone: nothing else of the suite runs beside it.
	Alone bool
	// Run checks it, with clients from Env. The error says what was seen
	// instead; it is wrapped in a [Failure] by [Run] and [Check].
	Run func(ctx context.Context, e *Env) error
}

// Ability is a set of optional fields of a [Harness].
type Ability uint8

// The abilities.
const (
	CanStall  Ability = 1 << iota // Harness.Stall
	CanCut                        // Harness.Cut
	HasDriver                     // Harness.Driver
	HasTTL                        // liveness is a TTL: Info.MinTTL or Harness.TTL is set
	CanFlood                      // Harness.Flood
)

// Harness tells the suite how to reach a backend. Only Open is required.
type Harness struct {
	// Open opens another client of the same store, as another process would:
	// closing it leaves the others alone.
	Open func(ctx context.Context, opts ...holdfast.Option) (*holdfast.Space, error)
	// Driver opens another client without the library around it. It lets the
	// suite wrap a driver as programs do.
	Driver func(ctx context.Context) (driver.Driver, error)
	// Stall stops the keepalives of a client from Open, as if its process had
	// been stopped; resume lets them go on.
	Stall func(s *holdfast.Space) (resume func())
	// Cut makes every call of a client from Open go unanswered until its
	// context ends, as behind a link that drops everything; mend ends that.
	Cut func(s *holdfast.Space) (mend func())
	// Flood lets a case write until the store forgets its oldest events. Do not
	// set it for a store that others watch.
	Flood bool
	// Select picks cases; nil: all that apply.
	Select func(c Case) bool
	// TTL is what sessions that are meant to be lost live; 0: Info.MinTTL, or the
	// shortest above it that the backend does not refuse with ErrInvalid.
	TTL time.Duration
	// Timeout bounds one case; 0: 60 seconds.
	Timeout time.Duration
	// Parallel is how many cases Check runs at a time; 0: 16.
	Parallel int
	// Require are features that this backend has to have beside those that
	// Required demands of its scheme.
	Require []driver.Feature
}

// URL is the Harness of whatever holdfast.Open opens by rawURL: calls of one
// URL have to reach one store.
func URL(rawURL string) Harness {
	return Harness{
		Open: func(ctx context.Context, opts ...holdfast.Option) (*holdfast.Space, error) {
			return holdfast.Open(ctx, rawURL, opts...)
		},
		Driver: func(ctx context.Context) (driver.Driver, error) { return driver.Open(ctx, rawURL) },
	}
}

// Failure is a promise that was not kept.
type Failure struct {
	Case    string
	Promise string
	Err     error // what was seen instead
}

func (f *Failure) Error() string {
	return fmt.Sprintf("%s: not kept: %s Instead: %v", f.Case, f.Promise, f.Err)
}

// Unwrap gives what was seen instead.
func (f *Failure) Unwrap() error { return f.Err }

// Cases lists every promise, in the order in which they are best read.
func Cases() []Case {
	return slices.Concat(
		featureCases, mutexCases, queueCases, nameCases, holdCases, doCases, endCases, panicCases,
		rwCases, upgradeCases, semaphoreCases, resizeCases, allCases,
		lossCases, claimDeadlineCases, forceCases, sessionCases, reclaimCases,
		electionCases, latchCases, counterCases, bufferedCases, sequenceCases, limiterCases,
		kvCases, rangeCases, txnCases, pageCases, watchCases, historyCases,
		inspectCases, sweepCases, spaceCases, errorCases, absentCases())
}

// Run runs every case that applies as a subtest of t, many at a time whatever
// -parallel says, since most of them only wait.
func Run(t *testing.T, h Harness) {
	s, err := newSuite(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.end)
	room := make(chan struct{}, s.Parallel)
	for _, c := range s.cases() {
		t.Run(c.Name, func(t *testing.T) {
			answer := later(func() (struct{}, error) {
				room <- struct{}{}
				defer func() { <-room }()
				return struct{}{}, s.run(t.Context(), c)
			})
			if !c.Alone {
				t.Parallel() // returns when every case has been started
			}
			if <-answer.ended; answer.err != nil {
				t.Error(answer.err)
			}
		})
	}
}

// Check runs every case that applies, several at a time, and tells each to
// report, one after the other, as it ends; err is nil or a *[Failure]. It
// returns all failures together.
func Check(ctx context.Context, h Harness, report func(c Case, err error, took time.Duration)) error {
	s, err := newSuite(ctx, h)
	if err != nil {
		return err
	}
	defer s.end()
	var (
		mu     sync.Mutex
		failed []error
		room   = make(chan struct{}, s.Parallel)
		all    sync.WaitGroup
	)
	one := func(c Case) {
		start := time.Now()
		err := s.run(ctx, c)
		took := time.Since(start)
		mu.Lock()
		defer mu.Unlock()
		report(c, err, took)
		failed = append(failed, err)
	}
	for _, c := range s.cases() {
		if c.Alone {
			one(c)
			continue
		}
		room <- struct{}{}
		all.Go(func() { one(c); <-room })
	}
	all.Wait()
	return errors.Join(failed...)
}

// suite is a Harness with its open questions answered.
type suite struct {
	Harness
	probe *holdfast.Space // sees when the backend is held up
	info  driver.Info
	run0  string // what all names of this run begin with
}

func newSuite(ctx context.Context, h Harness) (*suite, error) {
	probe, err := h.Open(ctx)
	if err != nil {
		return nil, fmt.Errorf("drivertest: the backend does not open: %w", err)
	}
	s := &suite{Harness: h, probe: probe, info: probe.Info(), run0: "drivertest/" + rand.Text()[:8] + "/"}
	if s.Timeout == 0 {
		s.Timeout = time.Minute
	}
	if s.TTL == 0 && s.info.MinTTL > 0 {
		s.TTL = s.leastTTL(ctx, probe)
	}
	if s.Parallel == 0 {
		s.Parallel = 16
	}
	return s, nil
}

// end closes the probe, and gives up on a backend that hangs, which the cases have told.
func (s *suite) end() {
	closed := later(func() (struct{}, error) { return struct{}{}, s.probe.Close() })
	select {
	case <-closed.ended:
	case <-time.After(grace):
	}
}

// leastTTL is the shortest TTL that the backend takes, to a second. Its Info cannot know of
// what it is asked for only later, as by a server with several nodes.
func (s *suite) leastTTL(ctx context.Context, probe *holdfast.Space) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	for ttl := s.info.MinTTL; ttl < s.info.MaxTTL; ttl += max(time.Second, ttl/4) {
		ses, err := probe.Session(ctx, holdfast.TTL(ttl))
		if err == nil {
			_ = ses.Revoke() // it ends with the probe anyway
		}
		if !errors.Is(err, holdfast.ErrInvalid) {
			return ttl // a backend without sessions has said all with its Info; the cases tell what else is wrong
		}
	}
	return s.info.MinTTL
}

// cases are those that apply; those that run alone come first.
func (s *suite) cases() []Case {
	cases := slices.DeleteFunc(Cases(), func(c Case) bool { return !s.applies(c) })
	slices.SortStableFunc(cases, func(a, b Case) int {
		switch {
		case a.Alone == b.Alone:
			return 0
		case a.Alone:
			return -1
		}
		return 1
	})
	return cases
}

func (s *suite) applies(c Case) bool {
	lacking := func(f driver.Feature) bool { return !s.info.Features[f] }
	return (s.Select == nil || s.Select(c)) &&
		!slices.ContainsFunc(c.Needs, lacking) &&
		(c.Lacks == "" || lacking(c.Lacks)) &&
		c.Uses&^s.abilities() == 0
}

func (s *suite) abilities() Ability {
	var a Ability
	for ability, has := range map[Ability]bool{
		CanStall: s.Stall != nil, CanCut: s.Cut != nil, HasDriver: s.Driver != nil, HasTTL: s.TTL > 0, CanFlood: s.Flood,
	} {
		if has {
			a |= ability
		}
	}
	return a
}

func (s *suite) run(ctx context.Context, c Case) error {
	timeout := patience(s.Timeout)
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("nothing more happened within %s", timeout))
	defer cancel()
	e := &Env{suite: s, ctx: ctx, prefix: s.run0 + c.Name + "/"}
	check := later(func() (struct{}, error) {
		defer cancel()
		return struct{}{}, c.Run(ctx, e)
	})
	ended := later(func() (struct{}, error) {
		<-check.ended
		return struct{}{}, e.close()
	})
	if err := outcome(ctx, check, ended); err != nil {
		return &Failure{Case: c.Name, Promise: c.Promise, Err: err}
	}
	return nil
}

// outcome waits until the check has ended and its clients are closed. What the
// check saw counts more than how its clients close.
func outcome(ctx context.Context, check, ended *background[struct{}]) error {
	var hung error
	select {
	case <-ended.ended:
		hung = ended.err
	case <-stuck(ctx):
		hung = fmt.Errorf("a call goes on after its context has ended: %w", context.Cause(ctx))
	}
	if check.over() && check.err != nil {
		return check.err
	}
	return hung
}

// grace is how long after its context's end a case may take to return: Close
// may need five seconds for a client that is cut off.
const grace = 6 * time.Second

// stuck is closed when a case that does not look at its context is given up.
func stuck(ctx context.Context) <-chan struct{} {
	late := make(chan struct{})
	context.AfterFunc(ctx, func() { time.AfterFunc(grace, func() { close(late) }) })
	return late
}
