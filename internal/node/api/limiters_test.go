package api_test

import (
	"fmt"
	"math"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-io/holdfast/internal/node/api"
	"github.com/holdfast-io/holdfast/limit"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

func (r *rig) limits() pb.LimitServiceClient { return pb.NewLimitServiceClient(r.conn) }

// hourly is a rate at which nothing comes back during a test.
func hourly(count int64) *pb.Rate { return &pb.Rate{Count: count, PerMs: 3_600_000} }

// allow asks for a cost of a limiter that exists.
func (r *rig) allow(name, key string, cost int64) *pb.Decision {
	r.t.Helper()
	return must[*pb.LimitAllowResponse](r.t)(r.limits().Allow(r.ctx, &pb.LimitAllowRequest{Name: name, Key: key, Cost: &cost})).Decision
}

// available is what there is of a limiter that exists.
func (r *rig) available(name, key string) int64 {
	r.t.Helper()
	return must[*pb.LimitAvailableResponse](r.t)(r.limits().Available(r.ctx, &pb.LimitAvailableRequest{Name: name, Key: key})).Available
}

// noLimiter expects that there is none.
func (r *rig) noLimiter(name string) {
	r.t.Helper()
	_, err := r.limits().Available(r.ctx, &pb.LimitAvailableRequest{Name: name})
	if f := wantCode(r.t, err, codes.NotFound); !f.NotDone {
		r.t.Errorf("no limiter: %v", err)
	}
}

// "RateLimitTryAcquire { key, tokens }" is answered with "RateLimitAllowed { remaining }" or
// "RateLimitDenied { retry_after_ms }", and carries no rate; "RateLimitReset { key }".
func TestLimiters(t *testing.T) {
	r := serve(t)
	l := r.limits()
	first := must[*pb.LimitAllowResponse](t)(l.Allow(r.ctx, &pb.LimitAllowRequest{Name: "mails", Key: "ann", Rate: hourly(3)}))
	if d := first.Decision; !d.Allowed || d.Remaining != 2 || d.Limit != 3 || d.RetryAfterMs != 0 || first.Header.GetMemberId() != 1 || first.Header.GetRevision() == 0 {
		t.Errorf("the first: %v", first)
	}
	if d := r.allow("mails", "ann", 2); !d.Allowed || d.Remaining != 0 {
		t.Errorf("two more: %v", d)
	}
	if d := r.allow("mails", "ann", 1); d.Allowed || d.RetryAfterMs <= 1_000_000 || d.RetryAfterMs > 1_200_000 || d.ResetAfterMs <= 3_000_000 {
		t.Errorf("one too many: %v", d)
	}
	if d := r.allow("mails", "bob", 3); !d.Allowed {
		t.Errorf("another key: %v", d)
	}
	p := must[*pb.LimitPeekResponse](t)(l.Peek(r.ctx, &pb.LimitPeekRequest{Name: "mails", Key: "cid", Cost: proto.Int64(3)})).Decision
	if again := r.available("mails", "cid"); !p.Allowed || p.Remaining != 3 || again != 3 {
		t.Errorf("a look: %v, then %d", p, again)
	}
	must[*pb.LimitResetResponse](t)(l.Reset(r.ctx, &pb.LimitResetRequest{Name: "mails", Key: "ann"}))
	if n := r.available("mails", "ann"); n != 3 {
		t.Errorf("%d after a reset", n)
	}
}

func TestLimiters_Rates(t *testing.T) {
	r := serve(t)
	l := r.limits()
	for algorithm := range pb.Algorithm_name {
		rate := &pb.Rate{Count: 2, PerMs: 3_600_000, Algorithm: pb.Algorithm(algorithm)}
		if algorithm == int32(pb.Algorithm_ALGORITHM_CALENDAR_WINDOW) {
			rate.PerMs, rate.Every, rate.OffsetMinutes = 0, pb.Period_PERIOD_YEAR, -90
		}
		name := fmt.Sprint("by ", algorithm)
		for i := range 3 {
			d := must[*pb.LimitAllowResponse](t)(l.Allow(r.ctx, &pb.LimitAllowRequest{Name: name, Rate: rate})).Decision
			if d.Allowed != (i < 2) || d.Allowed != (d.RetryAfterMs == 0) || d.Limit != 2 {
				t.Errorf("%s, request %d: %v", pb.Algorithm(algorithm), i, d)
			}
		}
	}
	_, err := l.Allow(r.ctx, &pb.LimitAllowRequest{Name: "by 1", Rate: hourly(5)})
	if f := wantCode(t, err, codes.Aborted); f.Kind != "conflict" || !f.NotDone {
		t.Errorf("another rate: %v", err)
	}
	must[*pb.LimitSetRateResponse](t)(l.SetRate(r.ctx, &pb.LimitSetRateRequest{Name: "by 1", Rate: &pb.Rate{Count: 1, PerMs: 1000, Burst: 9, Initial: 4}}))
	if d := r.allow("by 1", "", 1); d.Remaining < 3 || d.Limit != 9 {
		t.Errorf("at the new rate: %v", d)
	}
	must[*pb.DeleteResponse](t)(l.Delete(r.ctx, &pb.DeleteRequest{Name: "by 1"}))
	r.noLimiter("by 1")
}

func TestLimiters_Reservations(t *testing.T) {
	r := serve(t)
	l := r.limits()
	reserve := func(cost int64) *pb.LimitReserveResponse {
		return must[*pb.LimitReserveResponse](t)(l.Reserve(r.ctx, &pb.LimitReserveRequest{Name: "gpu", Key: "k", Cost: &cost, Rate: hourly(10)}))
	}
	left := func(want int64, after string) {
		t.Helper()
		if n := r.available("gpu", "k"); n != want {
			t.Errorf("%d are left after %s, not %d", n, after, want)
		}
	}
	first := reserve(6)
	must[*pb.LimitSettleResponse](t)(l.Settle(r.ctx, &pb.LimitSettleRequest{Name: "gpu", Key: "k", Reservation: first.Reservation, Cost: proto.Int64(2)}))
	left(8, "less")
	second := reserve(5)
	must[*pb.LimitCancelResponse](t)(l.Cancel(r.ctx, &pb.LimitCancelRequest{Name: "gpu", Key: "k", Reservation: second.Reservation}))
	left(8, "a cancel")
	third := reserve(1)
	must[*pb.LimitSettleResponse](t)(l.Settle(r.ctx, &pb.LimitSettleRequest{Name: "gpu", Key: "k", Reservation: third.Reservation, Cost: proto.Int64(20)}))
	left(0, "more than there is")
	if no := reserve(1); no.Decision.Allowed || no.Reservation != "" {
		t.Errorf("while it is in debt: %v", no)
	}
	must[*pb.LimitResetResponse](t)(l.Reset(r.ctx, &pb.LimitResetRequest{Name: "gpu", Key: "k"}))
	reserve(10)
	later := must[*pb.LimitReserveResponse](t)(l.Reserve(r.ctx, &pb.LimitReserveRequest{Name: "gpu", Key: "k", MaxWaitMs: 3_600_000}))
	if d := later.Decision; !d.Allowed || d.RetryAfterMs < 300_000 || d.RetryAfterMs > 360_000 {
		t.Errorf("a cost that is there later: %v", d)
	}
}

// A reservation that is not what Reserve has answered for that limiter and key is
// refused, and gives nothing back.
func TestLimiters_StrangeReservations(t *testing.T) {
	r := serve(t)
	l := r.limits()
	text := must[*pb.LimitReserveResponse](t)(l.Reserve(r.ctx, &pb.LimitReserveRequest{Name: "a", Key: "k", Cost: proto.Int64(4), Rate: hourly(5)})).Reservation
	must[*pb.LimitAllowResponse](t)(l.Allow(r.ctx, &pb.LimitAllowRequest{Name: "b", Key: "k", Cost: proto.Int64(4), Rate: hourly(5)}))
	cancel := func(name, key, reservation string) {
		t.Helper()
		_, err := l.Cancel(r.ctx, &pb.LimitCancelRequest{Name: name, Key: key, Reservation: reservation})
		if f := wantCode(t, err, codes.InvalidArgument); !f.NotDone || !strings.Contains(err.Error(), "reservation") {
			t.Errorf("%q of %q, %q: %v", reservation, name, key, err)
		}
		r.want(400, "POST", "/v1/limiters/"+name+":settle", fmt.Sprintf(`{"key":%q,"reservation":%q,"cost":0}`, key, reservation))
	}
	cancel("a", "", text)
	cancel("a", "k2", text)
	cancel("b", "k", text)
	for _, bad := range []string{"", "x", "AQ", "AQAAAA", text + "A", text + "=", strings.Repeat("A", 50_000)} {
		cancel("a", "k", bad)
	}
	for i := range text {
		cancel("a", "k", text[:i])
		cancel("a", "k", text[:i]+string(text[i]^1)+text[i+1:])
	}
	if a, b := r.available("a", "k"), r.available("b", "k"); a != 1 || b != 1 {
		t.Errorf("%d and %d are left", a, b)
	}
	must[*pb.LimitCancelResponse](t)(l.Cancel(r.ctx, &pb.LimitCancelRequest{Name: "a", Key: "k", Reservation: text}))
	if n := r.available("a", "k"); n != 5 {
		t.Errorf("%d are left after it was given back", n)
	}
}

func TestRESTLimiters(t *testing.T) {
	r := serve(t)
	d := r.want(200, "POST", "/v1/limiters/mails:allow", `{"key":"ann","cost":2,"rate":"3/1h"}`)
	if d["allowed"] != true || num(d["remaining"]) != 1 || num(d["limit"]) != 3 || num(d["retry_after_ms"]) != 0 {
		t.Errorf("got %v", d)
	}
	if d := r.want(200, "POST", "/v1/limiters/mails:allow", `{"key":"ann","cost":2}`); d["allowed"] != false || num(d["retry_after_ms"]) < 1_000_000 {
		t.Errorf("one too many: %v", d)
	}
	if d := r.want(200, "GET", "/v1/limiters/mails?key=ann&rate="+url.QueryEscape("3/1h"), ""); d["allowed"] != true || num(d["remaining"]) != 1 {
		t.Errorf("a look: %v", d)
	}
	if d := r.want(200, "GET", "/v1/limiters/mails?key=ann&cost=0", ""); d["allowed"] != true || num(d["remaining"]) != 1 {
		t.Errorf("what there is: %v", d)
	}
	v := r.want(200, "POST", "/v1/limiters/mails:reserve", `{"key":"ann"}`)
	r.want(200, "POST", "/v1/limiters/mails:cancel", fmt.Sprintf(`{"key":"ann","reservation":%q}`, v["reservation"]))
	v = r.want(200, "POST", "/v1/limiters/mails:reserve", `{"key":"ann"}`)
	r.want(200, "POST", "/v1/limiters/mails:settle", fmt.Sprintf(`{"key":"ann","reservation":%q,"cost":0}`, v["reservation"]))
	v = r.want(200, "POST", "/v1/limiters/mails:reserve", `{"key":"ann","cost":2,"max_wait_ms":3600000}`)
	if v["allowed"] != true || num(v["retry_after_ms"]) < 1_000_000 || v["reservation"] == "" {
		t.Errorf("a cost that is there later: %v", v)
	}
	r.want(200, "POST", "/v1/limiters/mails:reset", `{"key":"ann"}`)
	if n := r.available("mails", "ann"); n != 3 {
		t.Errorf("%d after a reset", n)
	}
	r.want(409, "POST", "/v1/limiters/mails:allow", `{"rate":"4/1h"}`)
	r.want(200, "POST", "/v1/limiters/mails:set-rate", `{"rate":"100/month","offset_minutes":60}`)
	r.want(200, "POST", "/v1/limiters/log:allow", `{"rate":"4/1s","algorithm":"sliding-log"}`)
	if n := r.available("mails", "ann"); n != 100 {
		t.Errorf("%d at the new rate", n)
	}
	r.want(200, "DELETE", "/v1/limiters/mails", "")
	r.want(404, "POST", "/v1/limiters/mails:allow", `{}`)
}

// What makes no sense is refused before a limiter is made or anything is taken, over
// gRPC and over HTTP.
func TestLimiters_BadInput(t *testing.T) {
	r := serve(t)
	l := r.limits()
	must[*pb.LimitAllowResponse](t)(l.Allow(r.ctx, &pb.LimitAllowRequest{Name: "known", Rate: &pb.Rate{Count: 9, PerMs: 3_600_000, Burst: 3}}))
	long := strings.Repeat("k", 513)
	for _, c := range []struct {
		in   *pb.LimitAllowRequest
		body string
		says string
	}{
		{&pb.LimitAllowRequest{Rate: &pb.Rate{}}, `{"rate":"0/1s"}`, "count 0 is out of range"},
		{&pb.LimitAllowRequest{Rate: &pb.Rate{PerMs: 1000, Burst: 5}}, `{"rate":"0/1s","burst":5}`, "count 0 is out of range"},
		{&pb.LimitAllowRequest{Rate: hourly(-1)}, `{"rate":"-1/1h"}`, "count -1 is out of range"},
		{&pb.LimitAllowRequest{Rate: hourly(math.MaxInt64)}, `{"rate":"9223372036854775807/1h"}`, "is out of range"},
		{&pb.LimitAllowRequest{Rate: &pb.Rate{Count: 1}}, `{"rate":"1/0s"}`, "is out of range"},
		{&pb.LimitAllowRequest{Rate: &pb.Rate{Count: 1, PerMs: -5}}, `{"rate":"1/-5ms"}`, "is out of range"},
		{&pb.LimitAllowRequest{Rate: &pb.Rate{Count: 1, PerMs: math.MaxInt64}}, `{"rate":"1/2540400h"}`, "is out of range"},
		{&pb.LimitAllowRequest{Rate: &pb.Rate{Count: 1, PerMs: limit.MaxPer.Milliseconds(), Burst: limit.MaxCount}}, `{"rate":"1/87840h","burst":1099511627776}`, "to fill"},
		{&pb.LimitAllowRequest{Rate: &pb.Rate{Count: 1, PerMs: 1000, Burst: -1}}, `{"rate":"1/1s","burst":-1}`, "burst -1 is out of range"},
		{&pb.LimitAllowRequest{Rate: &pb.Rate{Count: 1, PerMs: 1000, Algorithm: 9}}, `{"rate":"1/1s","algorithm":"leaky"}`, "is unknown"},
		{&pb.LimitAllowRequest{Rate: &pb.Rate{Count: 1, PerMs: 1000, Every: 256}}, `{"rate":"1/week"}`, ""},
		{&pb.LimitAllowRequest{Rate: &pb.Rate{Count: 1, Algorithm: pb.Algorithm_ALGORITHM_CALENDAR_WINDOW, Every: pb.Period_PERIOD_DAY, OffsetMinutes: math.MinInt64}}, `{"rate":"1/day","offset_minutes":-9223372036854775808}`, "offset"},
		{&pb.LimitAllowRequest{Rate: &pb.Rate{Count: 1, Algorithm: pb.Algorithm_ALGORITHM_CALENDAR_WINDOW, Every: pb.Period_PERIOD_DAY, Burst: 3}}, `{"rate":"1/day","burst":3}`, "Burst"},
		{&pb.LimitAllowRequest{Rate: hourly(5), Cost: proto.Int64(6)}, `{"rate":"5/1h","cost":6}`, "can never be taken: the most is 5"},
		{&pb.LimitAllowRequest{Name: "known", Cost: proto.Int64(4)}, `{"cost":4}`, "can never be taken: the most is 3"},
		{&pb.LimitAllowRequest{Rate: hourly(5), Cost: proto.Int64(0)}, `{"rate":"5/1h","cost":0}`, "a cost of 0"},
		{&pb.LimitAllowRequest{Rate: hourly(5), Cost: proto.Int64(-1)}, `{"rate":"5/1h","cost":-1}`, "a cost of -1"},
		{&pb.LimitAllowRequest{Rate: hourly(5), Cost: proto.Int64(math.MinInt64)}, `{"rate":"5/1h","cost":-9223372036854775808}`, "a cost of -"},
		{&pb.LimitAllowRequest{Rate: hourly(5), Key: long}, `{"rate":"5/1h","key":"` + long + `"}`, "it has 513 bytes"},
		{&pb.LimitAllowRequest{Rate: hourly(5), Key: "a\x00b"}, `{"rate":"5/1h","key":"a\u0000b"}`, "control character"},
		{&pb.LimitAllowRequest{Rate: hourly(5), Name: long}, `{"rate":"5/1h"}`, "it has 513 bytes"},
	} {
		path := "/v1/limiters/" + c.in.Name
		if c.in.Name == "" {
			c.in.Name, path = "x", "/v1/limiters/x"
		}
		_, err := l.Allow(r.ctx, c.in)
		if f := wantCode(t, err, codes.InvalidArgument); !f.NotDone || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v: %v", c.in, err)
		}
		for _, verb := range []string{":allow", ":reserve"} {
			if out := r.want(400, "POST", path+verb, c.body); out["not_done"] != true || !strings.Contains(out["error"].(string), c.says) {
				t.Errorf("%s %s: %v", verb, c.body, out)
			}
		}
	}
	r.noLimiter("x")
	if n := r.available("known", ""); n != 2 {
		t.Errorf("%d are left", n)
	}
}

// The other calls say what is wrong with them too.
func TestLimiters_BadCalls(t *testing.T) {
	r := serve(t)
	l := r.limits()
	huge := strings.Repeat("k", 10<<20)
	_, err := l.Allow(r.ctx, &pb.LimitAllowRequest{Name: "x", Key: huge, Rate: hourly(1)})
	wantCode(t, err, codes.ResourceExhausted)
	if code, _ := r.do("POST", "/v1/limiters/x:allow", `{"rate":"1/1h","key":"`+huge+`"}`); code != 413 {
		t.Errorf("a key of 10 MB is answered with %d", code)
	}
	for says, call := range map[string]func() error{
		"the rate is missing": func() error { _, err := l.SetRate(r.ctx, &pb.LimitSetRateRequest{Name: "x"}); return err },
		"count 0": func() error {
			_, err := l.SetRate(r.ctx, &pb.LimitSetRateRequest{Name: "x", Rate: &pb.Rate{}})
			return err
		},
		"the cost is missing": func() error { _, err := l.Settle(r.ctx, &pb.LimitSettleRequest{Name: "x"}); return err },
		"a max_wait_ms of -1": func() error {
			_, err := l.Reserve(r.ctx, &pb.LimitReserveRequest{Name: "x", Rate: hourly(1), MaxWaitMs: -1})
			return err
		},
		"a max_wait_ms of 9223": func() error {
			_, err := l.Reserve(r.ctx, &pb.LimitReserveRequest{Name: "x", Rate: hourly(1), MaxWaitMs: math.MaxInt64})
			return err
		},
		"name: it is empty": func() error { _, err := l.Reset(r.ctx, &pb.LimitResetRequest{}); return err },
		"a cost of -2": func() error {
			_, err := l.Peek(r.ctx, &pb.LimitPeekRequest{Name: "x", Cost: proto.Int64(-2), Rate: hourly(1)})
			return err
		},
		"can never be taken": func() error {
			_, err := l.Peek(r.ctx, &pb.LimitPeekRequest{Name: "x", Cost: proto.Int64(2), Rate: hourly(1)})
			return err
		},
	} {
		if err := call(); !strings.Contains(fmt.Sprint(err), says) || !wantCode(t, err, codes.InvalidArgument).NotDone {
			t.Errorf("%q is not said: %v", says, err)
		}
	}
	for body, says := range map[string]string{`{"burst":5}`: "are of a rate", `{}`: "the rate is missing", `{"rate":"5"}`: "is no rate", `{"rate":"x/1s"}`: "is no rate", `{"rate":""}`: "the rate is missing"} {
		if out := r.want(400, "POST", "/v1/limiters/x:set-rate", body); !strings.Contains(out["error"].(string), says) {
			t.Errorf("%s: %v", body, out)
		}
	}
	r.noLimiter("x")
	r.want(404, "POST", "/v1/limiters/x:reset", `{}`)
	r.want(404, "GET", "/v1/limiters/x", "")
	r.want(404, "DELETE", "/v1/limiters/x", "")
	r.want(200, "POST", "/v1/counters/n:add", `{}`)
	r.want(409, "POST", "/v1/limiters/n:allow", `{"rate":"5/1h"}`)
}

// A repeated call with a key takes once, a refusal is repeated as well, and a look is
// What a calendar limiter would decide can be looked at before anything else was asked.
func TestLimiters_CalendarFirst(t *testing.T) {
	r := serve(t)
	rate := &pb.Rate{Count: 100, Algorithm: pb.Algorithm_ALGORITHM_CALENDAR_WINDOW, Every: pb.Period_PERIOD_DAY}
	p := must[*pb.LimitPeekResponse](t)(r.limits().Peek(r.ctx, &pb.LimitPeekRequest{Name: "x", Rate: rate})).Decision
	if !p.Allowed || p.Remaining != 100 && p.Remaining != 99 {
		t.Errorf("the first call is told %v", p)
	}
	r.noLimiter("x")
}

// never an old one.
func TestLimiters_IdempotencyKey(t *testing.T) {
	r := serve(t)
	l := r.limits()
	once := r.as("idempotency-key", "k1")
	in := &pb.LimitAllowRequest{Name: "x", Cost: proto.Int64(2), Rate: hourly(5)}
	for range 3 {
		if d := must[*pb.LimitAllowResponse](t)(l.Allow(once, in)).Decision; !d.Allowed || d.Remaining != 3 {
			t.Fatalf("the same call: %v", d)
		}
	}
	_, err := l.Allow(once, &pb.LimitAllowRequest{Name: "x"})
	wantCode(t, err, codes.Aborted)
	for range 2 {
		r.want(200, "POST", "/v1/limiters/x:allow", `{"cost":3}`, "Idempotency-Key", "k2")
		d := must[*pb.LimitPeekResponse](t)(l.Peek(r.as("idempotency-key", "k1"), &pb.LimitPeekRequest{Name: "x"})).Decision
		if d.Allowed || d.Remaining != 0 {
			t.Fatalf("a look: %v", d)
		}
	}
	in = &pb.LimitAllowRequest{Name: "x"}
	refused := must[*pb.LimitAllowResponse](t)(l.Allow(r.as("idempotency-key", "k3"), in)).Decision
	r.want(200, "POST", "/v1/limiters/x:reset", `{}`)
	if d := must[*pb.LimitAllowResponse](t)(l.Allow(r.as("idempotency-key", "k3"), in)).Decision; d.Allowed || !proto.Equal(d, refused) {
		t.Errorf("%v is repeated as %v", refused, d)
	}
	v := must[*pb.LimitReserveResponse](t)(l.Reserve(r.as("idempotency-key", "k4"), &pb.LimitReserveRequest{Name: "log", Cost: proto.Int64(2), Rate: &pb.Rate{Count: 5, PerMs: 3_600_000, Algorithm: pb.Algorithm_ALGORITHM_FIXED_WINDOW}}))
	r.allow("log", "", 3)
	for range 3 {
		must[*pb.LimitCancelResponse](t)(l.Cancel(r.as("idempotency-key", "k5"), &pb.LimitCancelRequest{Name: "log", Reservation: v.Reservation}))
	}
	if n := r.available("log", ""); n != 2 {
		t.Errorf("%d are given back", n)
	}
}

// Callers of every protocol, of every node of a group, take together what the rate
// allows, and no more.
func TestLimiters_CountExactly(t *testing.T) {
	rigs := trioWith(t, api.Config{})
	leader(t, rigs)
	var allowed atomic.Int64
	ask := []func(r *rig) bool{
		func(r *rig) bool {
			out, err := r.limits().Allow(r.ctx, &pb.LimitAllowRequest{Name: "x", Key: "k", Rate: hourly(50)})
			if err != nil {
				t.Error(err)
			}
			return out.GetDecision().GetAllowed()
		},
		func(r *rig) bool {
			code, out := r.do("POST", "/v1/limiters/x:allow", `{"key":"k","rate":"50/1h"}`)
			if code != 200 {
				t.Error(out)
			}
			return out["allowed"] == true
		},
		func(r *rig) bool {
			code, out := r.do("POST", "/holdfast.v1.LimitService/Allow", `{"name":"x","key":"k","rate":{"count":"50","perMs":"3600000"}}`)
			if code != 200 {
				t.Error(out)
			}
			d, _ := out["decision"].(map[string]any)
			return d["allowed"] == true
		},
	}
	var all sync.WaitGroup
	for i := range 9 {
		all.Go(func() {
			for range 10 {
				if ask[i/3](rigs[i%3]) {
					allowed.Add(1)
				}
			}
		})
	}
	all.Wait()
	if n := allowed.Load(); n != 50 {
		t.Errorf("%d of 50 were allowed", n)
	}
}
