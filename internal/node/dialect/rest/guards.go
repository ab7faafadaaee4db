package rest

import (
	"context"
	"encoding/json"

	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/internal/node/gateway"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

type restGuard struct {
	When  json.RawMessage `json:"when" doc:"the condition, as the when of a file of guards: {\"all\":[{\"lock_free\":\"main\"},{\"not\":{\"file_exists\":\".freeze\"}}]}"`
	Facts []restFact      `json:"facts" doc:"what the caller has found out: of branches, issues, files, sessions and commands; and the time, if it is not that of the node"`
}

type restInput struct {
	Source string `json:"source" doc:"branch, merged, issues, issue, file, session, command or clock; the node finds out about lock, semaphore, counter, election, limit and key itself"`
	Name   string `json:"name" doc:"the branch, filter, issue, file, session or command"`
	Other  string `json:"other,omitempty" doc:"what a branch is merged into, the key of a limiter"`
}

type restFact struct {
	restInput
	Error  string `json:"error" doc:"why it could not be found out; the rest then means nothing"`
	Is     *bool  `json:"is" doc:"the branch, file or session is there, the branch is merged, the command succeeded; has to be given for these"`
	Text   string `json:"text" doc:"the status of an issue, which has to be given, or what a command said"`
	Number *int64 `json:"number" doc:"how many issues are open; of the clock, nanoseconds since 1970; has to be given for these"`
	Total  *int64 `json:"total" doc:"how many issues match the filter; has to be given for issues"`
}

// plainFact is read without UnmarshalJSON.
type plainFact restFact

// UnmarshalJSON is as strict as for a body: a field in other letters would be lost.
func (f *restFact) UnmarshalJSON(b []byte) error { return decode(b, (*plainFact)(f)) }

type restResult struct {
	Outcome string       `json:"outcome" doc:"passed, failed, needs_input or error"`
	Reasons []restReason `json:"reasons" doc:"one for every leaf, in the order of the condition"`
	Missing []restInput  `json:"missing" doc:"the facts that are missing"`
	// Revision is that of all facts but those of limiters.
	Revision int64 `json:"revision" doc:"the revision of the answer"`
}

type restReason struct {
	Path     string `json:"path" doc:"where the leaf stands: all[1].not.file_exists"`
	Kind     string `json:"kind" doc:"its kind, as in files"`
	Outcome  string `json:"outcome" doc:"what it comes to"`
	Decides  bool   `json:"decides" doc:"as long as it stays so, the condition cannot pass"`
	Want     string `json:"want" doc:"what it asks for"`
	Got      string `json:"got" doc:"what was found"`
	SinceMS  int64  `json:"since_ms,omitempty" doc:"since when it is so, in milliseconds since 1970; absent: not known"`
	Revision uint64 `json:"revision,omitempty" doc:"the revision at which it was read"`
	Source   string `json:"source" doc:"where it was found out"`
	Hint     string `json:"hint,omitempty" doc:"what would help"`
}

func evaluate(ctx context.Context, g *gateway.Gateway, name string, in *restGuard) (restResult, error) {
	r := &pb.GuardEvaluateRequest{Name: name, When: string(in.When)}
	for i := range in.Facts {
		f := &in.Facts[i]
		r.Facts = append(r.Facts, &pb.GuardFact{
			Input: &pb.GuardInput{Source: f.Source, Name: f.Name, Other: f.Other},
			Error: f.Error, Is: f.Is, Text: f.Text, Number: f.Number, Total: f.Total,
		})
	}
	out, err := gateway.Guards{Gateway: g}.Evaluate(ctx, r)
	if err != nil {
		return restResult{}, err
	}
	return resultOf(out), nil
}

func resultOf(out *pb.GuardEvaluateResponse) restResult {
	r := restResult{Outcome: outcomeName(out.Outcome), Reasons: []restReason{}, Missing: []restInput{}, Revision: out.Header.GetRevision()}
	for _, m := range out.Reasons {
		r.Reasons = append(r.Reasons, restReason{m.Path, m.Kind, outcomeName(m.Outcome), m.Decides, m.Want, m.Got, m.SinceMs, m.Revision, m.Source, m.Hint})
	}
	for _, in := range out.Missing {
		r.Missing = append(r.Missing, restInput{in.Source, in.Name, in.Other})
	}
	return r
}

func outcomeName(o pb.GuardOutcome) string {
	return guard.Outcome(o - pb.GuardOutcome_GUARD_OUTCOME_PASSED).String()
}
