package api_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// A count without an amount counts one, by every protocol; 0 is 0.
func TestCounters_AmountIsOne(t *testing.T) {
	r := serve(t)
	for i, body := range []string{`{}`, ``} {
		if got := r.want(200, "POST", "/v1/counters/n:add", body); num(got["value"]) != int64(i+1) {
			t.Errorf("%q counted to %v", body, got)
		}
	}
	c := pb.NewCounterServiceClient(r.conn)
	if v := must[*pb.CounterAddResponse](t)(c.Add(r.ctx, &pb.CounterAddRequest{Name: "g"})); v.Value != 1 {
		t.Errorf("gRPC counted %v", v)
	}
	if v := must[*pb.CounterAddResponse](t)(c.Add(r.ctx, &pb.CounterAddRequest{Name: "g", Amount: new(uint64)})); v.Value != 1 {
		t.Errorf("0 is counted as %v", v)
	}
	if v := must[*pb.CounterSubtractResponse](t)(c.Subtract(r.ctx, &pb.CounterSubtractRequest{Name: "g"})); v.Value != 0 {
		t.Errorf("gRPC counted down to %v", v)
	}
	if got := r.want(200, "POST", "/v1/counters/g:subtract", `{"amount":0}`); num(got["value"]) != 0 {
		t.Errorf("0 is counted as %v", got)
	}
	if got := r.want(200, "POST", "/holdfast.v1.CounterService/Add", `{"name":"g"}`); got["value"] != "1" {
		t.Errorf("JSON counted %v", got)
	}
}

// The numbers of an unsigned counter are heeded, and those of the other kind refused.
func TestCounters_UnsignedNumbers(t *testing.T) {
	r := serve(t)
	for _, body := range []string{`{"unsigned":true,"unsigned_value":0}`, `{"unsigned":true,"unsigned_value":18446744073709551615}`} {
		if out := r.want(200, "POST", "/v1/counters/u:set", body); out["unsigned_value"] == nil {
			t.Errorf("%s is answered with %v", body, out)
		}
	}
	out := r.want(200, "POST", "/v1/counters/u:compare-and-set", `{"unsigned":true,"unsigned_expected":18446744073709551615,"unsigned_value":6}`)
	if out["swapped"] != true || num(out["unsigned_value"]) != 6 {
		t.Errorf("got %v", out)
	}
	c := pb.NewCounterServiceClient(r.conn)
	_, err1 := c.Set(r.ctx, &pb.CounterSetRequest{Name: "u", Value: 5, Unsigned: true})
	_, err2 := c.Set(r.ctx, &pb.CounterSetRequest{Name: "s", UnsignedValue: 5})
	_, err3 := c.CompareAndSet(r.ctx, &pb.CounterCompareAndSetRequest{Name: "u", Expected: 6, Value: 7, Unsigned: true})
	_, err4 := c.CompareAndSet(r.ctx, &pb.CounterCompareAndSetRequest{Name: "s", UnsignedExpected: math.MaxUint64})
	for _, err := range []error{err1, err2, err3, err4} {
		wantCode(t, err, codes.InvalidArgument)
	}
}

// What stands behind the ? is read as the field that it is for.
func TestREST_QueryIsTyped(t *testing.T) {
	r := serve(t)
	r.want(200, "POST", "/v1/locks/x:acquire?holder_id=42&timeout_ms=0", "")
	if out := r.want(409, "POST", "/v1/locks/x:acquire?holder_id=true&timeout_ms=0", ""); out["holder"] != "42" {
		t.Errorf("held by %v", out)
	}
	r.want(200, "POST", "/v1/counters/n:add?amount=18446744073709551615&unsigned=true", "")
	if out := r.want(200, "GET", "/v1/counters/n?unsigned=true", ""); out["unsigned_value"] != float64(math.MaxUint64) {
		t.Errorf("counted %v", out)
	}
	for query, says := range map[string]string{
		"counters/n?unsigned=1": `"unsigned" behind the ? of the path is "1": give true or false`, "counters/n?unsigned={": "give true or false",
		"keys/a?limit=many": "give a whole number", "keys/a?colour=blue": `"colour" behind the ? of the path is nothing that this call takes`,
	} {
		if out := r.want(400, "GET", "/v1/"+query, ""); !strings.Contains(fmt.Sprint(out), says) {
			t.Errorf("%s: %v", query, out)
		}
	}
}

// JSON with a field that a call does not have is refused there too: it would mean
// something to its caller.
func TestJSON_UnknownFields(t *testing.T) {
	r := serve(t)
	for path, body := range map[string]string{
		"/holdfast.v1.CounterService/Add":  `{"name":"n","amuont":"5"}`,
		"/holdfast.v1.LockService/Lock":    `{"name":"x","leaseID":"5"}`,
		"/holdfast.v1.SessionService/Open": `{"ttl":60}`,
		"/holdfast.v1.WatchService/Watch":  `{"from":5}`,
		"/holdfast.v1.LockService/TryLock": ``,
		"/holdfast.v1.KVService/Txn":       `{"then":[{"put":{"key":"k","valeu":"eA=="}}]}`,
		"/holdfast.v1.InspectService/Ping": `{"x":1}`,
	} {
		for _, kind := range []string{"application/json", "application/json; charset=utf-8"} {
			if code, out := r.do("POST", path, body, "Content-Type", kind); code != 400 {
				t.Errorf("%s %s of %s: %d %v", path, body, kind, code, out)
			}
		}
	}
	r.untouched()
}
