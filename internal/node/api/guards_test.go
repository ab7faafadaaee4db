package api_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/guard/gather"
	"github.com/holdfast-io/holdfast/guard/guardfile"
	"github.com/holdfast-io/holdfast/internal/node/api"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
	"github.com/holdfast-io/holdfast/remote"
)

const (
	passed     = pb.GuardOutcome_GUARD_OUTCOME_PASSED
	failed     = pb.GuardOutcome_GUARD_OUTCOME_FAILED
	needsInput = pb.GuardOutcome_GUARD_OUTCOME_NEEDS_INPUT
	isError    = pb.GuardOutcome_GUARD_OUTCOME_ERROR
)

// evaluated asks about a condition.
func (r *rig) evaluated(when string, facts ...*pb.GuardFact) *pb.GuardEvaluateResponse {
	r.t.Helper()
	return must[*pb.GuardEvaluateResponse](r.t)(pb.NewGuardServiceClient(r.conn).Evaluate(r.ctx, &pb.GuardEvaluateRequest{Name: "g", When: when, Facts: facts}))
}

// reason is the only one of an answer.
func (r *rig) reason(when string, facts ...*pb.GuardFact) *pb.GuardReason {
	r.t.Helper()
	out := r.evaluated(when, facts...)
	if len(out.Reasons) != 1 || out.Outcome != out.Reasons[0].Outcome {
		r.t.Fatalf("%s: %v", when, out)
	}
	return out.Reasons[0]
}

func factOf(source, name string, f *pb.GuardFact) *pb.GuardFact {
	f.Input = &pb.GuardInput{Source: source, Name: name}
	return f
}

// populate makes one of everything that a node finds out about.
func (r *rig) populate() {
	r.t.Helper()
	r.want(200, "POST", "/v1/locks/held:acquire", `{"holder_id":"ann"}`)
	r.want(200, "POST", "/v1/rwlocks/read:acquire", `{"holder_id":"bob","mode":"read"}`)
	for i := range 1200 { // more than one page of holders
		r.want(200, "POST", "/v1/rwlocks/many:acquire", fmt.Sprintf(`{"holder_id":"r%04d","mode":"read"}`, i))
	}
	r.want(200, "POST", "/v1/semaphores/agents:acquire", `{"limit":3,"weight":2}`)
	r.want(200, "POST", "/v1/counters/jobs:add", `{"amount":7}`)
	r.want(200, "POST", "/v1/counters/bytes:add", `{"amount":7,"unsigned":true}`)
	r.want(200, "POST", "/v1/elections/scheduler:campaign", `{"holder_id":"cid"}`)
	r.want(200, "PUT", "/v1/kv/mode", `{"value":"on"}`)
	r.want(200, "POST", "/v1/limiters/mails:allow", `{"key":"ann","cost":2,"rate":"3/1h"}`)
}

// leaves are conditions about what populate makes, with what is found.
var leaves = []struct {
	when string
	want pb.GuardOutcome
	got  string
}{
	{`{"lock_free":"free"}`, passed, "free"},
	{`{"lock_free":"held"}`, failed, `held by "ann"`},
	{`{"lock_free":"read"}`, failed, `held by "bob"`},
	{`{"lock_held_by":{"name":"held","holder":"ann"}}`, passed, `held by "ann"`},
	{`{"lock_held_by":{"name":"held","holder":"bob"}}`, failed, `held by "ann"`},
	{`{"lock_held_by":{"name":"many","holder":"r0000"}}`, passed, `held by "r0000" and 1199 more`},
	{`{"lock_held_by":{"name":"many","holder":"r0001"}}`, passed, `held by "r0000" and 1199 more`},
	{`{"lock_held_by":{"name":"many","holder":"r1199"}}`, passed, `held by "r0000" and 1199 more`},
	{`{"not":{"lock_held_by":{"name":"many","holder":"r1199"}}}`, failed, `held by "r0000" and 1199 more`},
	{`{"lock_held_by":{"name":"many","holder":"r1200"}}`, failed, `held by "r0000" and 1199 more`},
	{`{"lock_free":"jobs"}`, isError, `"jobs" is a counter`},
	{`{"semaphore_available":"agents"}`, passed, "1 available"},
	{`{"semaphore_available":{"name":"agents","weight":2}}`, failed, "1 available"},
	{`{"semaphore_available":"absent"}`, passed, "nobody has used it yet"},
	{`{"semaphore_available":{"name":"absent","weight":2}}`, isError, "its first user sets its limit"},
	{`{"semaphore_available":{"name":"absent","weight":2,"limit":3}}`, passed, "nobody has used it yet"},
	{`{"counter":{"name":"jobs","at_least":7}}`, passed, "7"},
	{`{"counter":{"name":"absent","equals":0}}`, passed, "0"},
	{`{"counter":{"name":"jobs","equals":8}}`, failed, "7"},
	{`{"counter":{"name":"bytes","equals":7}}`, isError, "unsigned"},
	{`{"leader":"scheduler"}`, passed, "yes: cid"},
	{`{"leader":{"election":"scheduler","owner":"ann"}}`, failed, "yes: cid"},
	{`{"leader":"nobody"}`, failed, "no"},
	{`{"key":"mode"}`, passed, "yes: on"},
	{`{"key":{"key":"mode","equals":"off"}}`, failed, "yes: on"},
	{`{"key":{"key":"none","exists":false}}`, passed, "no"},
	{`{"limit_available":{"limiter":"mails","key":"ann"}}`, passed, "1 available"},
	{`{"limit_available":{"limiter":"mails","key":"ann","cost":2}}`, failed, "1 available"},
	{`{"limit_available":{"limiter":"mails","key":"bob","cost":3}}`, passed, "3 available"},
	{`{"limit_available":"absent"}`, isError, "there is no limiter"},
	{`{"not":{"lock_free":"held"}}`, passed, `held by "ann"`},
}

// What a semaphore or a limiter never has is told by the node as that.
func TestGuards_NeverEnough(t *testing.T) {
	r := serve(t)
	r.want(200, "POST", "/v1/semaphores/agents:acquire", `{"limit":3,"weight":2}`)
	r.want(200, "POST", "/v1/limiters/mails:allow", `{"key":"ann","cost":2,"rate":"3/1h"}`)
	for when, hint := range map[string]string{
		`{"limit_available":{"limiter":"mails","key":"ann","cost":9}}`: "it never allows more than 3",
		`{"limit_available":{"limiter":"mails","key":"ann","cost":3}}`: "it refills with time",
		`{"semaphore_available":{"name":"agents","weight":99}}`:        "so much is never free",
	} {
		if out := r.evaluated(when); out.Outcome != failed || !strings.Contains(out.Reasons[0].Hint, hint) {
			t.Errorf("%s: %v", when, out)
		}
	}
}

// Every leaf about coordination is decided by the node, with a reason.
func TestGuards_Leaves(t *testing.T) {
	r := serve(t)
	r.populate()
	for _, c := range leaves {
		out := r.evaluated(c.when)
		if out.Outcome != c.want || len(out.Reasons) != 1 || !strings.Contains(out.Reasons[0].Got, c.got) || len(out.Missing) > 0 {
			t.Errorf("%s: %v", c.when, out)
		}
	}
	if l := r.reason(`{"lock_free":"held"}`); !l.Decides || l.SinceMs == 0 || l.Hint == "" || l.Want != `the lock "held" is free` || l.Kind != "lock_free" || l.Path != "lock_free" {
		t.Errorf("a reason: %v", l)
	}
}

// A node decides as the library does that asks it.
func TestGuards_AsTheLibrary(t *testing.T) {
	r := serve(t)
	r.populate()
	s, err := remote.Open(remote.Config{Endpoints: []string{r.addr}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	library := gather.New(gather.Config{Space: s})
	for _, c := range leaves {
		guards, err := guardfile.Parse("x.json", []byte(`{"guards":{"g":{"when":`+c.when+`}}}`))
		if err != nil {
			t.Fatal(err)
		}
		want, got := library.Evaluate(r.ctx, &guards[0].When).Reasons[0], r.evaluated(c.when).Reasons[0]
		if got.Outcome != pb.GuardOutcome(want.Outcome+1) || got.Want != want.Want || got.Path != want.Path || got.Decides != want.Decides || got.Got != want.Got && want.Outcome != guard.Error {
			t.Errorf("%s: %v, by the library %v", c.when, got, want)
		}
	}
}

// All facts but those of limiters are of one revision; namespaces have their own; a look
// changes nothing.
func TestGuards_OneRevision(t *testing.T) {
	r := serve(t)
	r.evaluated(`{"any":[{"lock_free":"a"},{"key":"k"},{"counter":{"name":"n","equals":0}},{"leader":"e"}]}`)
	r.untouched()
	r.populate()
	out := r.evaluated(`{"all":[{"not":{"lock_free":"held"}},{"semaphore_available":"agents"},{"counter":{"name":"jobs","equals":7}},{"leader":"scheduler"},{"key":"mode"},{"limit_available":"mails"}]}`)
	for _, l := range out.Reasons[:5] {
		if l.Revision == 0 || l.Revision != uint64(out.Header.Revision) {
			t.Errorf("at revision %d: %v", out.Header.Revision, l)
		}
	}
	if out.Outcome != passed || out.Reasons[0].Path != "all[0].not.lock_free" {
		t.Errorf("all: %v", out)
	}
	other := must[*pb.GuardEvaluateResponse](t)(pb.NewGuardServiceClient(r.conn).Evaluate(r.as("holdfast-namespace", "team"), &pb.GuardEvaluateRequest{Name: "g", When: `{"lock_free":"held"}`}))
	if other.Outcome != passed {
		t.Errorf("in another namespace: %v", other)
	}
}

// "A node evaluates coordination leaves only and never runs commands, git or HTTP; other
// inputs come with the call or are 'needs input'."
func TestGuards_FactsOfTheCaller(t *testing.T) {
	r := serve(t)
	proof := filepath.Join(t.TempDir(), "ran")
	if err := os.WriteFile(proof+".there", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	leaves := map[string]*pb.GuardFact{
		`{"branch_exists":"main"}`:                         factOf("branch", "main", &pb.GuardFact{Is: new(true)}),
		`{"branch_not_exists":"gone"}`:                     factOf("branch", "gone", &pb.GuardFact{Is: new(false)}),
		`{"branch_merged":{"branch":"x","into":"main"}}`:   {Input: &pb.GuardInput{Source: "merged", Name: "x", Other: "main"}, Is: new(true)},
		`{"issues_complete":"milestone:1"}`:                factOf("issues", "milestone:1", &pb.GuardFact{Number: new(int64), Total: new(int64(4))}),
		`{"issue_status":{"issue":"7","status":"closed"}}`: factOf("issue", "7", &pb.GuardFact{Text: "closed"}),
		fmt.Sprintf(`{"file_exists":%q}`, proof+".there"):  factOf("file", proof+".there", &pb.GuardFact{Is: new(true)}),
		`{"session_alive":"tmux"}`:                         factOf("session", "tmux", &pb.GuardFact{Is: new(true)}),
		fmt.Sprintf(`{"custom_check":"touch %s"}`, proof):  factOf("command", "touch "+proof, &pb.GuardFact{Is: new(true)}),
	}
	for when, f := range leaves {
		out := r.evaluated(when)
		if out.Outcome != needsInput || len(out.Missing) != 1 || !proto.Equal(out.Missing[0], f.Input) || out.Reasons[0].Hint == "" {
			t.Errorf("%s without its fact: %v", when, out)
		}
		if l := r.reason(when, f); l.Outcome != passed || l.Source != "the caller" {
			t.Errorf("%s: %v", when, l)
		}
		_, err := pb.NewGuardServiceClient(r.conn).Evaluate(r.ctx, &pb.GuardEvaluateRequest{Name: "g", When: when, Facts: []*pb.GuardFact{{Input: f.Input}}})
		if wantCode(t, err, codes.InvalidArgument); !strings.Contains(err.Error(), "has no ") {
			t.Errorf("%s with a fact that says nothing: %v", when, err)
		}
		if l := r.reason(when, &pb.GuardFact{Input: f.Input, Error: "git is away"}); l.Outcome != isError || l.Got != "git is away" {
			t.Errorf("%s that could not be found out: %v", when, l)
		}
	}
	if _, err := os.Stat(proof); err == nil {
		t.Error("the node has run a command")
	}
	r.untouched()
}

// Windows of time go by the clock of the caller, or else of the node.
func TestGuards_Clock(t *testing.T) {
	r := serve(t)
	if l := r.reason(`{"time_window":{"from":"00:00","to":"00:00"}}`); l.Outcome != passed || l.Source != "the clock of the node" {
		t.Errorf("of any hour: %v", l)
	}
	noon := factOf("clock", "", &pb.GuardFact{Number: new(int64(12 * 3600 * 1e9))})
	for when, want := range map[string]pb.GuardOutcome{`{"time_window":{"from":"11:00","to":"13:00"}}`: passed, `{"time_window":{"from":"13:00","to":"14:00"}}`: failed} {
		if l := r.reason(when, noon); l.Outcome != want || !strings.HasSuffix(l.Got, ", until Thu 13:00") {
			t.Errorf("%s at noon: %v", when, l)
		}
	}
}

func TestRESTGuards(t *testing.T) {
	r := serve(t)
	r.populate()
	const when = `{"all":[{"lock_free":"held"},{"not":{"file_exists":".freeze"}},{"key":"mode"}]}`
	out := r.want(200, "POST", "/v1/guards/merge:evaluate", `{"when":`+when+`}`)
	first := out["reasons"].([]any)[0].(map[string]any)
	if out["outcome"] != "failed" || first["path"] != "all[0].lock_free" || first["outcome"] != "failed" || first["decides"] != true || first["got"] != `held by "ann"` || num(out["revision"]) == 0 {
		t.Errorf("got %v", out)
	}
	if m := out["missing"].([]any); len(m) != 1 || fmt.Sprint(m[0]) != "map[name:.freeze source:file]" {
		t.Errorf("missing: %v", m)
	}
	out = r.want(200, "POST", "/v1/guards/merge:evaluate", `{"when":{"not":{"file_exists":".freeze"}},"facts":[{"source":"file","name":".freeze","is":false}]}`)
	if out["outcome"] != "passed" || len(out["missing"].([]any)) != 0 {
		t.Errorf("with the fact: %v", out)
	}
	for _, fact := range []string{`{"source":"file","name":".freeze"}`, `{"source":"file","name":".freeze","is":null}`, `{"source":"file","name":".freeze","text":"no"}`} {
		r.want(400, "POST", "/v1/guards/merge:evaluate", `{"when":{"file_not_exists":".freeze"},"facts":[`+fact+`]}`)
	}
	for _, fact := range []string{`"total":4`, `"number":0`} {
		r.want(400, "POST", "/v1/guards/merge:evaluate", `{"when":{"issues_complete":"x"},"facts":[{"source":"issues","name":"x",`+fact+`}]}`)
	}
	out = r.want(200, "POST", "/holdfast.v1.GuardService/Evaluate", `{"name":"merge","when":"{\"lock_free\":\"held\"}"}`)
	if out["outcome"] != "GUARD_OUTCOME_FAILED" {
		t.Errorf("as JSON: %v", out)
	}
}

// A condition or a fact that makes no sense is refused, with the place in the condition.
func TestGuards_BadInput(t *testing.T) {
	r := serve(t)
	g := pb.NewGuardServiceClient(r.conn)
	many := func(n int, leaf string) string {
		var list []string
		for i := range n {
			list = append(list, fmt.Sprintf(leaf, i))
		}
		return `{"all":[` + strings.Join(list, ",") + `]}`
	}
	for _, c := range []struct {
		when, says string
		facts      []*pb.GuardFact
	}{
		{when: ``, says: "the condition is missing"},
		{when: `{`, says: "when:1:1: not JSON: unexpected end"},
		{when: `[`, says: "when:1:1: not JSON: unexpected end"},
		{when: "{\"all\":\n  [}", says: "when:2:4: not JSON"},
		{when: `null`, says: "when:1:1"},
		{when: `[]`, says: "when:1:1"},
		{when: "{\n \"lock_fre\":\"x\"}", says: "when:2:2"},
		{when: `{"lock_free":{"name":"a","name":"b"}}`, says: `when:1:26: the key "name" is on line 1 already`},
		{when: "{\"lock_free\":{\"name\":\"a\",\n\"name\":\"b\"}}", says: `when:2:1: the key "name" is on line 1 already`},
		{when: `{"lock_free":"x","key":"y"}`, says: "when:1:"},
		{when: `{"lock_free":5}`, says: "when:1:14"},
		{when: `{"lock_free":""}`, says: "when:1:14"},
		{when: `lock_free: x`, says: "not JSON"},
		{when: `{"lock_free":"x"}},"other":{"when":{"lock_free":"y"}`, says: "when:1:18: not JSON"},
		{when: strings.Repeat(`{"not":`, 40) + `{"lock_free":"x"}` + strings.Repeat(`}`, 40), says: "levels"},
		{when: many(1100, `{"lock_free":"%d"}`), says: "1024"},
		{when: many(129, `{"key":"%d"}`), says: "at most 128"},
		{when: many(129, `{"limit_available":"%d"}`), says: "at most 128"},
		{when: `{"lock_free":"x"}`, says: "finds out about the lock", facts: []*pb.GuardFact{factOf("lock", "x", &pb.GuardFact{})}},
		{when: `{"file_exists":"x"}`, says: "does not ask for", facts: []*pb.GuardFact{factOf("file", "y", &pb.GuardFact{})}},
		{when: `{"file_exists":"x"}`, says: "does not ask for", facts: []*pb.GuardFact{{}}},
		{when: `{"file_exists":"x"}`, says: "given twice", facts: []*pb.GuardFact{factOf("file", "x", &pb.GuardFact{Is: new(true)}), factOf("file", "x", &pb.GuardFact{Is: new(true)})}},
		{when: `{"issues_complete":"label:a"}`, says: "-1 of 3 are open", facts: []*pb.GuardFact{factOf("issues", "label:a", &pb.GuardFact{Number: new(int64(-1)), Total: new(int64(3))})}},
		{when: `{"issues_complete":"label:a"}`, says: "4 of 3 are open", facts: []*pb.GuardFact{factOf("issues", "label:a", &pb.GuardFact{Number: new(int64(4)), Total: new(int64(3))})}},
		{when: `{"key":"` + strings.Repeat("k", 600) + `"}`, says: "600 bytes"},
		{when: `{"lock_free":"` + strings.Repeat("n", 513) + `"}`, says: "513 bytes"},
	} {
		_, err := g.Evaluate(r.ctx, &pb.GuardEvaluateRequest{Name: "g", When: c.when, Facts: c.facts})
		if f := wantCode(t, err, codes.InvalidArgument); !f.NotDone || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%.60s: %v", c.when, err)
		}
	}
	_, err := g.Evaluate(r.ctx, &pb.GuardEvaluateRequest{When: `{"lock_free":"x"}`})
	wantCode(t, err, codes.InvalidArgument)
	_, err = g.Evaluate(r.ctx, &pb.GuardEvaluateRequest{Name: "g", When: strings.Repeat(" ", 70_000)})
	wantCode(t, err, codes.ResourceExhausted)
	for body, says := range map[string]string{
		`{}`: "the condition is missing", `{"when":"{}"}`: "when:1:1", `{"when":{"lock_free":"x"},"fact":[]}`: "unknown field",
		`{"when":{"file_exists":"x"},"facts":[{"source":"file","name":"x","Is":true}]}`:            "unknown field",
		`{"when":{"file_exists":"x"},"facts":[{"source":"file","name":"x","is":true,"is":false}]}`: "given twice",
		`{"when":{"lock_free":"x","lock_free":"y"}}`:                                               "when:1:",
	} {
		if out := r.want(400, "POST", "/v1/guards/g:evaluate", body); out["not_done"] != true || !strings.Contains(out["error"].(string), says) {
			t.Errorf("%s: %v", body, out)
		}
	}
	r.untouched()
}

// Values that are more than one answer may read are refused, and long ones are cut in
// reasons but not in the decision.
func TestGuards_LongValues(t *testing.T) {
	r := serve(t)
	long := strings.Repeat("v", 60_000)
	var leaves []string
	for i := range 20 {
		r.want(200, "PUT", fmt.Sprintf("/v1/kv/k%d", i), `{"value":"`+long+`"}`)
		leaves = append(leaves, fmt.Sprintf(`{"key":"k%d"}`, i))
	}
	out := r.evaluated(`{"all":[` + strings.Join(leaves[:10], ",") + `]}`)
	if l := out.Reasons[0]; out.Outcome != passed || len(l.Got) > 600 {
		t.Errorf("ten: %v, %d bytes", out.Outcome, len(l.Got))
	}
	_, err := pb.NewGuardServiceClient(r.conn).Evaluate(r.ctx, &pb.GuardEvaluateRequest{Name: "g", When: `{"all":[` + strings.Join(leaves, ",") + `]}`})
	wantCode(t, err, codes.ResourceExhausted)
	r.want(200, "PUT", "/v1/kv/near", `{"value":"`+long[:3000]+`x"}`)
	if l := r.reason(`{"key":{"key":"near","equals":"` + long[:3000] + `y"}}`); l.Outcome != failed {
		t.Errorf("a value that differs at its end: %v", l.Outcome)
	}
}

// Every node of a group answers alike.
func TestGuards_Relay(t *testing.T) {
	rigs := trioWith(t, api.Config{})
	leader(t, rigs)
	rigs[0].want(200, "POST", "/v1/locks/held:acquire", `{"holder_id":"ann"}`)
	for _, r := range rigs {
		if l := r.reason(`{"lock_free":"held"}`); l.Got != `held by "ann"` {
			t.Errorf("by gRPC: %v", l)
		}
		if out := r.want(200, "POST", "/v1/guards/g:evaluate", `{"when":{"lock_free":"held"}}`); out["outcome"] != "failed" {
			t.Errorf("over HTTP: %v", out)
		}
	}
}

// What a limiter has left is read, and writes nothing: one condition about many of them, and
// the calls that look at one.
func TestGuards_LimitersAreRead(t *testing.T) {
	r := serve(t)
	const limiters = 128
	parts := make([]string, limiters)
	for i := range parts {
		name := fmt.Sprintf("l%d", i)
		r.want(200, "POST", "/v1/limiters/"+name+":allow", `{"key":"ann","cost":2,"rate":"3/1h"}`)
		parts[i] = fmt.Sprintf(`{"limit_available":{"limiter":%q,"key":"ann"}}`, name)
	}
	applied := func() uint64 {
		out := must[*pb.StatusResponse](t)(pb.NewAdminServiceClient(r.conn).Status(r.ctx, &pb.StatusRequest{}))
		return out.Applied
	}
	before := applied()
	out := r.evaluated(`{"all":[` + strings.Join(parts, ",") + `]}`)
	if out.Outcome != passed || len(out.Reasons) != limiters {
		t.Errorf("%d reasons, %s", len(out.Reasons), out.Outcome)
	}
	limits := pb.NewLimitServiceClient(r.conn)
	for range limiters {
		d := must[*pb.LimitPeekResponse](t)(limits.Peek(r.ctx, &pb.LimitPeekRequest{Name: "l0", Key: "ann", Cost: proto.Int64(2)}))
		if d.Decision.Allowed || d.Decision.Remaining != 1 {
			t.Fatalf("a peek: %v", d)
		}
		r.want(200, "GET", "/v1/limiters/l1?key=ann", "")
	}
	if n := applied() - before; n >= limiters { // fewer are the group's own, as the end of sessions
		t.Errorf("%d entries were written by %d looks", n, 3*limiters)
	}
}
