package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/guard/guardfile"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// Guards is pb.GuardService.
type Guards struct {
	*Gateway
}

func (s Guards) Evaluate(ctx context.Context, r *pb.GuardEvaluateRequest) (*pb.GuardEvaluateResponse, error) {
	out, err := s.evaluate(ctx, r)
	if err != nil {
		return nil, Named(err, "evaluate", r.Name)
	}
	return out, nil
}

func (s Guards) evaluate(ctx context.Context, r *pb.GuardEvaluateRequest) (*pb.GuardEvaluateResponse, error) {
	if err := CheckName(r.Name); err != nil {
		return nil, err
	}
	when, err := parseWhen(r.When)
	if err != nil {
		return nil, err
	}
	inputs := when.RequiredInputs()
	given, err := givenFacts(inputs, r.Facts)
	if err != nil {
		return nil, err
	}
	facts, revision, err := s.find(ctx, when, inputs)
	if err != nil {
		return nil, err
	}
	maps.Copy(facts, given)
	return explained(s.Header(ctx, revision), when.Explain(facts), missing(inputs, facts)), nil
}

// parseWhen reads a condition as files of guards have it.
func parseWhen(text string) (*guard.Condition, error) {
	if text == "" {
		return nil, Invalid("", "the condition is missing: give when, such as {\"lock_free\":\"main\"}")
	}
	if !json.Valid([]byte(text)) { // by itself: its brackets neither end ours nor begin them again
		_, err := guardfile.Parse("when.json", []byte(text))
		return nil, Invalid("", "%s", wrongWhen(err, 0))
	}
	const before = `{"guards":{"guard":{"when":` // on the first line, so that the numbers of lines are those of the condition
	guards, err := guardfile.Parse("when.json", []byte(before+text+"}}}"))
	if err != nil {
		return nil, Invalid("", "%s", wrongWhen(err, len(before)))
	}
	return &guards[0].When, nil
}

// wrongWhen tells what is wrong with a condition, and where in it: on the first line so many characters are before it.
func wrongWhen(err error, before int) string {
	all, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return err.Error()
	}
	var list []string
	for _, one := range all.Unwrap() {
		if e, ok := errors.AsType[*guardfile.Error](one); ok {
			c := *e
			if c.File = "when"; e.Line == 1 {
				c.Column -= before
			}
			one = &c
		}
		list = append(list, one.Error())
	}
	return strings.Join(list, "; ")
}

// foundHere are the sources that a node finds out about itself.
var foundHere = map[guard.Source]bool{
	guard.SourceLock: true, guard.SourceSemaphore: true, guard.SourceCounter: true, guard.SourceElection: true, guard.SourceLimit: true, guard.SourceKey: true,
}

// givenFacts are those of a call. One that nobody asks for is a mistake.
func givenFacts(inputs []guard.Input, list []*pb.GuardFact) (guard.Inputs, error) {
	facts := guard.Inputs{}
	for _, f := range list {
		in := guard.Input{Source: guard.Source(f.GetInput().GetSource()), Name: f.GetInput().GetName(), Other: f.GetInput().GetOther()}
		_, twice := facts[in]
		switch {
		case foundHere[in.Source]:
			return nil, Invalid("", "the node finds out about the %s %q itself: leave it out", in.Source, Clip(in.Name))
		case !slices.Contains(inputs, in):
			return nil, Invalid("", "the condition does not ask for the %s %q", Clip(string(in.Source)), Clip(in.Name))
		case twice:
			return nil, Invalid("", "the %s %q is given twice: give it once", in.Source, Clip(in.Name))
		}
		if field := lacks(in.Source, f); field != "" {
			return nil, Invalid("", "the fact about the %s %q has no %s: give it, or an error, or leave the fact out", in.Source, Clip(in.Name), field)
		}
		if open, all := f.GetNumber(), f.GetTotal(); in.Source == guard.SourceIssues && (open < 0 || open > all) {
			return nil, Invalid("", "the fact about the issues %q says that %d of %d are open: give a number of 0 to total", Clip(in.Name), open, all)
		}
		facts[in] = guard.Fact{Err: f.GetError(), Is: f.GetIs(), Text: f.GetText(), Number: f.GetNumber(), Total: f.GetTotal(), From: "the caller"}
	}
	return facts, nil
}

// lacks names the field that a fact of the source needs and has not: what a caller forgot to say
// counts neither as no nor as zero.
func lacks(from guard.Source, f *pb.GuardFact) string {
	switch {
	case f.GetError() != "":
		return ""
	case from == guard.SourceIssue:
		return absent("text", f.GetText() != "")
	case from == guard.SourceIssues && f.Number != nil:
		return absent("total", f.Total != nil)
	case from == guard.SourceIssues || from == guard.SourceClock:
		return absent("number", f.Number != nil)
	}
	return absent("is", f.Is != nil)
}

func absent(field string, given bool) string {
	if given {
		return ""
	}
	return field
}

// missing are the inputs without a fact.
func missing(inputs []guard.Input, facts guard.Inputs) (list []*pb.GuardInput) {
	for _, in := range inputs {
		if _, ok := facts[in]; !ok {
			list = append(list, &pb.GuardInput{Source: string(in.Source), Name: in.Name, Other: in.Other})
		}
	}
	return list
}

func explained(h *pb.Header, r guard.Result, missing []*pb.GuardInput) *pb.GuardEvaluateResponse {
	out := &pb.GuardEvaluateResponse{Header: h, Outcome: outcomeOf(r.Outcome), Missing: missing}
	for i := range r.Reasons {
		l := &r.Reasons[i]
		m := &pb.GuardReason{
			Path: l.Path, Kind: string(l.Kind), Outcome: outcomeOf(l.Outcome), Decides: l.Decides, Want: l.Want, Got: Clip(strings.ToValidUTF8(l.Got, "�")),
			Revision: l.Revision, Source: l.Source, Hint: l.Hint,
		}
		if !l.Since.IsZero() {
			m.SinceMs = l.Since.UnixMilli()
		}
		out.Reasons = append(out.Reasons, m)
	}
	return out
}

func outcomeOf(o guard.Outcome) pb.GuardOutcome {
	return pb.GuardOutcome(o) + pb.GuardOutcome_GUARD_OUTCOME_PASSED
}
