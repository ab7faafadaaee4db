package drivertest

import (
	"bytes"
	"context"
	"errors"
	"io/fs"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

var (
	election = []driver.Feature{driver.FeatureElection}
	observed = []driver.Feature{driver.FeatureElection, driver.FeatureWatch}
)

var electionCases = []Case{
	{Name: "Election/Campaign", Needs: election, Run: run(electionCampaign),
		Promise: "Who campaigns alone leads, and everybody is told its owner, value and token."},
	{Name: "Election/OneLeader", Needs: election, Run: run(electionOneLeader),
		Promise: "While somebody leads, others wait or are ErrHeld; when it resigns the next leads with a greater token."},
	{Name: "Election/Nobody", Needs: election, Run: run(electionNobody),
		Promise: "Leader is fs.ErrNotExist before the first election and after the last resignation."},
	{Name: "Election/Proclaim", Needs: election, Run: run(electionProclaim),
		Promise: "Proclaim changes the value that everybody is told; leadership and token stay."},
	{Name: "Election/LongValue", Needs: election, Run: run(electionLongValue),
		Promise: "A value of 4 KiB is told; a longer one is fs.ErrInvalid, of a candidate and of a leader, and changes nothing."},
	{Name: "Election/HandOver", Needs: election, Run: run(electionHandOver),
		Promise: "HandOver makes the named candidate lead although another waited before it."},
	{Name: "Election/HandOverToNobody", Needs: election, Run: run(electionHandOverToNobody),
		Promise: "HandOver to a candidate that does not wait is fs.ErrNotExist, and the leadership goes on."},
	{Name: "Election/HandOverUnheard", Needs: election, Uses: HasDriver, Run: run(electionHandOverUnheard),
		Promise: "A leader that does not hear whether it handed over has lost its leadership at once, and leaves nothing: the candidate leads."},
	{Name: "Election/Observe", Needs: observed, Run: run(electionObserve),
		Promise: "Observe yields the leader, each new value and each new leader, in order."},
	{Name: "Election/ObserveEnds", Needs: observed, Run: run(electionObserveEnds),
		Promise: "Observe waits for the first leader, and ends without an error when its context does."},
	{Name: "Election/LeadReturns", Needs: election, Run: run(electionLeadReturns),
		Promise: "Lead returns what its function returned, and has resigned."},
	{Name: "Election/LeadCampaignsAgain", Needs: []driver.Feature{driver.FeatureElection, driver.FeatureForce}, Run: timed(electionLeadCampaignsAgain),
		Promise: "Lead ends its function's context when leadership is lost, campaigns again and leads with a greater token."},
}

func electionCampaign(ctx context.Context, e *Env) {
	a, b := e.Client(holdfast.Owner("the first")), e.Client()
	l := must(a.Election("e").Campaign(ctx, []byte("10.0.0.7:80")))
	told := must(b.Election("e").Leader(ctx))
	want(told.Owner == "the first", "the leader is told as %q", told.Owner)
	want(string(told.Value) == "10.0.0.7:80", "its value is told as %q", told.Value)
	want(told.Token == l.Token(), "its token is told as %d; it has %d", told.Token, l.Token())
	done(l.Resign())
}

func electionOneLeader(ctx context.Context, e *Env) {
	a, b := e.Client(), e.Client()
	first := must(a.Election("e").Campaign(ctx, nil))
	refused(second(b.Election("e").TryCampaign(ctx, nil)), holdfast.ErrHeld, "TryCampaign beside a leader")
	next := campaign(ctx, b, "v")
	must(a.Inspect(ctx, "e"))
	want(!next.over(), "two lead at once")
	done(first.Resign())
	l := next.granted(ctx)
	want(l.Token() > first.Token(), "the next leader has the token %d, the one before had %d", l.Token(), first.Token())
	want(must(a.Election("e").Leader(ctx)).Token == l.Token(), "Leader tells %+v", must(a.Election("e").Leader(ctx)))
	done(l.Release())
}

// campaign waits in the queue to lead "e".
func campaign(ctx context.Context, s *holdfast.Space, value string) queued {
	return queue(ctx, func(o holdfast.HoldOption) (*holdfast.Hold, error) {
		l, err := s.Election("e", o).Campaign(ctx, []byte(value))
		if err != nil {
			return nil, err
		}
		return l.Hold, nil
	})
}

func electionNobody(ctx context.Context, e *Env) {
	s := e.Client()
	refused(second(s.Election("e").Leader(ctx)), fs.ErrNotExist, "Leader before the first election")
	l := must(s.Election("e").Campaign(ctx, nil))
	must(e.Client().Election("e").Leader(ctx))
	done(l.Resign())
	refused(second(e.Client().Election("e").Leader(ctx)), fs.ErrNotExist, "Leader after the resignation")
}

func electionProclaim(ctx context.Context, e *Env) {
	a, b := e.Client(), e.Client()
	l := must(a.Election("e").Campaign(ctx, []byte("one")))
	for _, value := range []string{"two", "", "three\x00\xff"} {
		done(l.Proclaim(ctx, []byte(value)))
		told := must(b.Election("e").Leader(ctx))
		want(string(told.Value) == value, "the value %q is told as %q", value, told.Value)
		want(told.Token == l.Token(), "after Proclaim the token is told as %d; it is %d", told.Token, l.Token())
	}
	done(l.Err())
	done(l.Resign())
	want(l.Proclaim(ctx, nil) != nil, "Proclaim after the resignation succeeded")
}

func electionLongValue(ctx context.Context, e *Env) {
	s, longest := e.Client(), bytes.Repeat([]byte("x"), 4<<10)
	longer := append(longest, 'x')
	refused(second(s.Election("e").Campaign(ctx, longer)), fs.ErrInvalid, "Campaign with a value of 4097 bytes")
	refused(second(s.Election("e").TryCampaign(ctx, longer)), fs.ErrInvalid, "TryCampaign with a value of 4097 bytes")
	refused(second(e.Client().Election("e").Leader(ctx)), fs.ErrNotExist, "Leader after them")
	l := must(s.Election("e").Campaign(ctx, longest))
	refused(l.Proclaim(ctx, longer), fs.ErrInvalid, "Proclaim of 4097 bytes")
	told := must(e.Client().Election("e").Leader(ctx))
	want(len(told.Value) == len(longest), "%d bytes are told", len(told.Value))
	done(l.Resign())
}

func electionHandOver(ctx context.Context, e *Env) {
	a, b, c := e.Client(), e.Client(holdfast.Owner("b")), e.Client(holdfast.Owner("c"))
	l := must(a.Election("e").Campaign(ctx, nil))
	other, chosen := campaign(ctx, b, "b"), campaign(ctx, c, "c")
	done(l.HandOver(ctx, "c"))
	next := chosen.granted(ctx)
	refused(l.Err(), holdfast.ErrReleased, "Err of a leadership that was handed over")
	told := must(a.Election("e").Leader(ctx))
	want(told.Owner == "c" && string(told.Value) == "c" && told.Token == next.Token(), "after the hand-over Leader tells %+v", told)
	want(!other.over(), "two lead at once")
	done(next.Release())
	done(other.granted(ctx).Release())
}

func electionHandOverToNobody(ctx context.Context, e *Env) {
	a, b := e.Client(), e.Client(holdfast.Owner("b"))
	l := must(a.Election("e").Campaign(ctx, nil))
	other := campaign(ctx, b, "b")
	refused(l.HandOver(ctx, "c"), fs.ErrNotExist, "HandOver to a candidate that does not wait")
	done(l.Err())
	want(must(b.Election("e").Leader(ctx)).Token == l.Token(), "after a refused hand-over Leader tells %+v", must(b.Election("e").Leader(ctx)))
	done(l.Resign())
	done(other.granted(ctx).Release())
}

func electionHandOverUnheard(ctx context.Context, e *Env) {
	for _, made := range []bool{true, false} {
		a, b := e.unanswered(ctx, made), e.Client(holdfast.Owner("b"))
		l := must(a.Election("e").Campaign(ctx, nil))
		next := campaign(ctx, b, "b")
		refused(l.HandOver(ctx, "b"), holdfast.ErrUnavailable, "HandOver without an answer")
		refused(l.Err(), holdfast.ErrLost, "Err of a leadership that may be another's")
		lead := next.granted(ctx)
		refused(l.Resign(), holdfast.ErrLost, "Resign of a leadership that may be another's")
		want(must(a.Election("e").Leader(ctx)).Token == lead.Token(), "after an unheard hand-over Leader tells another than the candidate")
		done(lead.Release())
	}
}

// observe starts Observe and returns a function that gives the next leader.
func observe(ctx context.Context, s *holdfast.Space) func() holdfast.Leader {
	leaders := make(chan holdfast.Leader)
	over := later(func() (struct{}, error) {
		for l, err := range s.Election("e").Observe(ctx) {
			if err != nil {
				return struct{}{}, err
			}
			select {
			case leaders <- l:
			case <-ctx.Done():
			}
		}
		return struct{}{}, errors.New("the observation ended before its context")
	})
	return func() holdfast.Leader {
		select {
		case l := <-leaders:
			return l
		case <-over.ended:
			done(over.err)
		case <-ctx.Done():
			fail("Observe yields nothing more: %w", context.Cause(ctx))
		}
		return holdfast.Leader{}
	}
}

func electionObserve(ctx context.Context, e *Env) {
	a, b := e.Client(), e.Client()
	l := must(a.Election("e").Campaign(ctx, []byte("one")))
	next := observe(ctx, b)
	expect := func(token holdfast.Token, value string) {
		got := next()
		want(got.Token == token && string(got.Value) == value, "Observe yields %+v; want the token %d with %q", got, token, value)
	}
	expect(l.Token(), "one")
	done(l.Proclaim(ctx, []byte("two")))
	expect(l.Token(), "two")
	done(l.Resign())
	l = must(a.Election("e").Campaign(ctx, []byte("three")))
	expect(l.Token(), "three")
	done(l.Resign())
}

func electionObserveEnds(ctx context.Context, e *Env) {
	a, b := e.Client(), e.Client()
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	var seen []holdfast.Leader
	over := later(func() (struct{}, error) {
		for l, err := range b.Election("e").Observe(watching) {
			done(err)
			seen = append(seen, l)
			cancel()
		}
		return struct{}{}, nil
	})
	l := must(a.Election("e").Campaign(ctx, []byte("v")))
	must(over.wait(ctx, "Observe past its context"))
	want(len(seen) == 1 && seen[0].Token == l.Token(), "Observe yielded %+v", seen)
	done(l.Resign())
}

func electionLeadReturns(ctx context.Context, e *Env) {
	s := e.Client()
	why := errors.New("f failed")
	for _, result := range []error{nil, why} {
		err := s.Election("e").Lead(ctx, []byte("v"), func(ctx context.Context, l *holdfast.Leadership) error {
			want(must(s.Election("e").Leader(ctx)).Token == l.Token(), "another leads")
			return result
		})
		want(errors.Is(err, result), "Lead returned %v; its function %v", err, result)
		refused(second(s.Election("e").Leader(ctx)), fs.ErrNotExist, "Leader after Lead")
	}
}

func electionLeadCampaignsAgain(ctx context.Context, e *Env) {
	a, b := e.Client(), e.Client()
	var tokens []holdfast.Token
	done(a.Election("e", e.short()).Lead(ctx, nil, func(bound context.Context, l *holdfast.Leadership) error {
		tokens = append(tokens, l.Token())
		if len(tokens) == 2 {
			return nil
		}
		lose(ctx, b, "e", l.Hold)
		ends(ctx, bound.Done(), "f's context after the loss of leadership")
		return bound.Err()
	}))
	want(len(tokens) == 2 && tokens[1] > tokens[0], "Lead led with the tokens %v", tokens)
}
