package api_test

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-io/holdfast"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
	"github.com/holdfast-io/holdfast/remote"
)

// What a caller sends is stored as it is, or refused before anything changes: never
// another text, and no field is ignored or taken twice.
func TestREST_StrictJSON(t *testing.T) {
	r := serve(t)
	for _, body := range []string{
		"{\"value\":\"\xff\"}", `{"value":"\ud800"}`, `{"value":"\udc00\ud800"}`, `{"value":"\ud800x"}`, `{"value":"x\ud83d\u0041"}`, `{"value":"\\\ud800"}`,
		`{"VALUE":"x"}`, `{"Value":"x"}`, `{"value ":"x"}`, `{"value":"x","valeu":"y"}`, `{"":1}`,
		`{"value":"x","value":"y"}`, `{"value":"x","v\u0061lue":"y"}`, `{"value":"x","value":null}`,
		`{"value":"x"} {}`, `{"value":"x"`, `["value"]`, `null`, `"value"`, `7`, `{value:"x"}`, `{"value":{"value":"x"}}`, `{"value":"\u12"}`,
		`{"value_base64":"!"}`,
	} {
		if out := r.want(400, "PUT", "/v1/kv/k", body); out["kind"] != "invalid argument" || out["not_done"] != true {
			t.Errorf("%q is refused with %v", body, out)
		}
	}
	for _, path := range []string{"/v1/locks/x:acquire?holder_id=%ff", "/v1/locks/x:acquire?HOLDER_ID=w", "/v1/locks/%ff:acquire"} {
		r.want(400, "POST", path, "")
	}
	for _, query := range []string{"timeout_ms=0;", "timeout_ms=0%", "holder_id=%zz", "a;b", "%"} {
		r.want(400, "POST", "/v1/locks/x:acquire?"+query, "")
	}
	r.want(400, "POST", "/v1/rwlocks/x:acquire", `{"mode":"read","":1}`)
	r.want(400, "POST", "/v1/rwlocks/x:acquire?mode=read&={}", "")
	r.want(400, "DELETE", "/v1/kv/k?expect_revision=null", "") // as a program writes a revision that it does not have
	r.want(400, "GET", "/v1/keys/?limit=+null+", "")
	r.want(400, "GET", "/v1/watch?prefix=%ff", "")
	r.want(400, "GET", "/v1/watch?prefix=50%", "")
	r.want(400, "GET", "/v1/watch?prefix=a;", "")
	for _, from := range []string{"", "0", "null", "-1"} { // from now on is what they do not say
		r.want(400, "GET", "/v1/watch?from="+from, "")
	}
	r.want(400, "POST", "/v1/locks/x:acquire", `{"holder_id":"a","TIMEOUT_MS":0}`)
	r.untouched()
	for i, text := range []string{"\U0001F600", "\u00e9\u0000", "\ufffd", `\ud800`, "\\"} {
		for _, body := range []string{fmt.Sprintf(`{"value":%q}`, text), asEscapes(text)} {
			if strings.Contains(body, `\x`) {
				continue // Go's way to write what JSON writes otherwise
			}
			name := fmt.Sprint("/v1/kv/", i)
			r.want(200, "PUT", name, body)
			if out := r.want(200, "GET", name, ""); out["value"] != text {
				t.Errorf("%s is stored as %q", body, out["value"])
			}
		}
	}
}

// asEscapes writes a text as JSON, all of it in escapes.
func asEscapes(text string) string {
	var b strings.Builder
	for _, c := range text {
		if c > 0xffff {
			c -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+c>>10, 0xdc00+c&0x3ff)
			continue
		}
		fmt.Fprintf(&b, `\u%04x`, c)
	}
	return `{"value":"` + b.String() + `"}`
}

// A number that may be left out is not taken for absent when it is 0, by any protocol.
func TestZeroIsNotAbsent(t *testing.T) {
	r := serve(t)
	for path, bodies := range map[string][]string{
		"/v1/sequences/s:reserve":                  {`{"count":0}`, `{"start":0}`, `{"count":-1}`},
		"/v1/semaphores/s:acquire":                 {`{"weight":0,"limit":3}`, `{"weight":-1,"limit":3}`},
		"/holdfast.v1.SequenceService/Reserve":     {`{"name":"s","count":"0"}`, `{"name":"s","start":"0"}`},
		"/holdfast.v1.SequenceService/Current":     {`{"name":"s","start":"0"}`},
		"/holdfast.v1.SemaphoreService/Acquire":    {`{"name":"s","weight":"0","limit":"3"}`},
		"/v1/sequences/s:reserve?count=0&start=1":  {``},
		"/v1/semaphores/s:acquire?weight=0&limit=": {``},
	} {
		for _, body := range bodies {
			r.want(400, "POST", path, body)
		}
	}
	_, err := pb.NewSequenceServiceClient(r.conn).Reserve(r.ctx, &pb.ReserveRequest{Name: "s", Count: proto.Uint64(0)})
	wantCode(t, err, codes.InvalidArgument)
	_, err = pb.NewSemaphoreServiceClient(r.conn).Acquire(r.ctx, &pb.SemaphoreAcquireRequest{Name: "s", Weight: proto.Int64(0), Limit: 3})
	wantCode(t, err, codes.InvalidArgument)
	r.untouched()
	if out := r.want(200, "POST", "/v1/sequences/s:reserve", `{}`); num(out["first"]) != 1 || num(out["count"]) != 1 {
		t.Errorf("reserved %v", out)
	}
	r.want(200, "POST", "/v1/semaphores/w:acquire", `{"limit":3}`)
}

// The kind of a failure has the same name by every protocol.
func TestKindsOnTheWire(t *testing.T) {
	r := serve(t)
	space, err := remote.Open(remote.Config{Endpoints: []string{r.addr}})
	if err != nil {
		t.Fatal(err)
	}
	defer space.Close()
	rw := pb.NewRWLockServiceClient(r.conn)
	one := must[*pb.AcquireReadResponse](t)(rw.AcquireRead(r.ctx, &pb.AcquireReadRequest{Name: "rw"})).Hold
	two := must[*pb.AcquireReadResponse](t)(rw.AcquireRead(r.ctx, &pb.AcquireReadRequest{Name: "rw"})).Hold
	three := must[*holdfast.Hold](t)(space.RWMutex("rw").Reader().Acquire(r.ctx))
	defer three.Release()
	first := make(chan error, 1)
	go func() {
		_, err := rw.Upgrade(r.ctx, &pb.UpgradeRequest{Name: "rw", Token: one.Token})
		first <- err
	}()
	r.waiters("rw", 1)
	_, deadlock := rw.Upgrade(r.ctx, &pb.UpgradeRequest{Name: "rw", Token: two.Token})
	_, missing := pb.NewSemaphoreServiceClient(r.conn).Acquire(r.ctx, &pb.SemaphoreAcquireRequest{Name: "none"})
	_, invalid := r.locks().Lock(r.ctx, &pb.LockRequest{})
	for kind, f := range map[error]*pb.Failure{
		holdfast.ErrDeadlock: wantCode(t, deadlock, codes.Aborted), holdfast.ErrNotFound: wantCode(t, missing, codes.NotFound),
		holdfast.ErrInvalid: wantCode(t, invalid, codes.InvalidArgument),
	} {
		if f.Kind != kind.Error() {
			t.Errorf("%v goes by the name of %q", kind, f.Kind)
		}
	}
	r.kind("deadlock", 409, "POST", "/v1/rwlocks/rw:upgrade", fmt.Sprintf(`{"token":%d}`, two.Token))
	r.kind("not found", 404, "GET", "/v1/kv/none", "")
	r.kind("not found", 404, "POST", "/v1/leases/77:keep", "{}")
	r.kind("invalid argument", 400, "POST", "/v1/locks/"+url.PathEscape(strings.Repeat("x", 513))+":acquire", "{}")
	r.kind("invalid argument", 400, "POST", "/v1/locks/x:acquire", "{}", "Holdfast-Namespace", strings.Repeat("n", 494))
	r.want(200, "POST", "/v1/locks/x:acquire", "{}", "Holdfast-Namespace", strings.Repeat("n", 493))
	if _, err := space.RWMutex("rw").Upgrade(r.ctx, three); !errors.Is(err, holdfast.ErrDeadlock) || !errors.Is(err, holdfast.ErrConflict) {
		t.Errorf("a second upgrade over a session: %v", err)
	}
	if _, err := space.KV().Get(r.ctx, "none"); !errors.Is(err, holdfast.ErrNotFound) {
		t.Errorf("a key that is not there: %v", err)
	}
	r.want(200, "POST", "/v1/rwlocks/rw:release", fmt.Sprintf(`{"token":%d}`, two.Token))
	if err := three.Release(); err != nil {
		t.Error(err)
	}
	if err := <-first; err != nil {
		t.Error(err)
	}
}

// kind expects a refusal of a kind.
func (r *rig) kind(kind string, code int, method, path, body string, headers ...string) {
	r.t.Helper()
	if out := r.want(code, method, path, body, headers...); out["kind"] != kind {
		r.t.Errorf("%s %s is refused with %v, want the kind %q", method, path, out, kind)
	}
}

// A condition that cannot be read is not left out: what it guards stays.
func TestREST_ConditionThatCannotBeRead(t *testing.T) {
	r := serve(t)
	r.want(200, "PUT", "/v1/kv/app/mode", `{"value":"x"}`)
	for _, query := range []string{"expect_revision=1;", "expect_revision=1%", "expect_revision=%zz"} {
		if out := r.want(400, "DELETE", "/v1/kv/app/mode?"+query, ""); out["kind"] != "invalid argument" || out["not_done"] != true {
			t.Errorf("%s is refused with %v", query, out)
		}
		r.want(200, "GET", "/v1/kv/app/mode", "")
	}
}

// A leader's value that is no text is told as it is.
func TestREST_LeaderOfBytes(t *testing.T) {
	r := serve(t)
	must[*pb.CampaignResponse](t)(pb.NewElectionServiceClient(r.conn).Campaign(r.ctx, &pb.CampaignRequest{Name: "e", Value: []byte{0xff, 0}}))
	if out := r.want(200, "GET", "/v1/elections/e", ""); out["value_base64"] != "/wA=" || out["value"] != nil {
		t.Errorf("the leader is told as %v", out)
	}
}
