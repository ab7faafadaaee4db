package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
)

// num is a number of a JSON answer.
func num(v any) int64 {
	f, _ := v.(float64)
	return int64(f)
}

func TestRESTLocks(t *testing.T) {
	r := serve(t)
	a := r.want(200, "POST", "/v1/locks/jobs/nightly:acquire", `{"holder_id":"w1","ttl_ms":30000,"timeout_ms":0}`)
	if num(a["token"]) == 0 || a["name"] != "jobs/nightly" || num(a["ttl_ms"]) > 30000 || num(a["ttl_ms"]) < 20000 {
		t.Fatalf("got %v", a)
	}
	b := r.want(409, "POST", "/v1/locks/jobs/nightly:acquire", `{"holder_id":"w2","timeout_ms":0}`)
	if b["kind"] != "held" || b["holder"] != "w1" || num(b["retry_after_ms"]) == 0 || b["not_done"] != true {
		t.Errorf("refused with %v", b)
	}
	c := r.want(504, "POST", "/v1/locks/jobs/nightly:acquire", `{"holder_id":"w2","timeout_ms":1}`)
	if c["kind"] != nil || c["holder"] != "w1" || c["not_done"] != true {
		t.Errorf("after a wait refused with %v", c)
	}
	token := fmt.Sprintf(`{"token":%d}`, num(a["token"]))
	if n := r.want(200, "POST", "/v1/locks/jobs/nightly:renew", fmt.Sprintf(`{"token":%d,"ttl_ms":120000}`, num(a["token"]))); num(n["ttl_ms"]) < 100_000 {
		t.Errorf("renewed %v", n)
	}
	s := r.want(200, "GET", "/v1/locks/jobs/nightly", "")
	if h := s["holders"].([]any); s["kind"] != "mutex" || len(h) != 1 || h[0].(map[string]any)["holder_id"] != "w1" {
		t.Errorf("shown %v", s)
	}
	r.want(410, "POST", "/v1/locks/jobs/nightly:release", `{"token":3}`)
	r.want(200, "POST", "/v1/locks/jobs/nightly:release", token)
	r.want(410, "POST", "/v1/locks/jobs/nightly:release", token)
	r.want(410, "POST", "/v1/locks/jobs/nightly:renew", token)
}

// A name is what stands between kind and verb, with every character of it.
func TestRESTNames(t *testing.T) {
	r := serve(t)
	for path, name := range map[string]string{
		"a/b/c": "a/b/c", "%2Flocks%2Fdb": "/locks/db", "//x": "//x", "a:b": "a:b", "a%3Aacquire": "a:acquire", "%C3%A4": "ä", "a/../b": "a/../b", "a+b": "a+b", "a%20b": "a b",
	} {
		if a := r.want(200, "POST", "/v1/locks/"+path+":acquire", ""); a["name"] != name {
			t.Errorf("%s is %q, not %q", path, a["name"], name)
		}
	}
}

func TestRESTOthers(t *testing.T) {
	r := serve(t)
	rd := r.want(200, "POST", "/v1/rwlocks/cfg:acquire", `{"mode":"read"}`)
	r.want(409, "POST", "/v1/rwlocks/cfg:acquire", `{"mode":"write","timeout_ms":0}`)
	r.want(400, "POST", "/v1/rwlocks/cfg:acquire", `{"mode":"maybe"}`)
	w := r.want(200, "POST", "/v1/rwlocks/cfg:upgrade", fmt.Sprintf(`{"token":%d}`, num(rd["token"])))
	r.want(200, "POST", "/v1/rwlocks/cfg:downgrade", fmt.Sprintf(`{"token":%d}`, num(w["token"])))
	r.want(200, "POST", "/v1/rwlocks/cfg:release", fmt.Sprintf(`{"token":%d}`, num(w["token"])))

	s := r.want(200, "POST", "/v1/semaphores/gpu:acquire", `{"weight":3,"limit":4,"holder_id":"w"}`)
	r.want(409, "POST", "/v1/semaphores/gpu:acquire", `{"weight":3,"timeout_ms":0}`)
	r.want(200, "POST", "/v1/semaphores/gpu:resize", `{"limit":6}`)
	r.want(409, "DELETE", "/v1/semaphores/gpu", "")
	r.want(200, "POST", "/v1/semaphores/gpu:release", fmt.Sprintf(`{"token":%d}`, num(s["token"])))
	r.want(200, "DELETE", "/v1/semaphores/gpu", "")

	e := r.want(200, "POST", "/v1/elections/boss:campaign", `{"holder_id":"me","value":"10.0.0.1"}`)
	r.want(200, "POST", "/v1/elections/boss:proclaim", fmt.Sprintf(`{"token":%d,"value":"10.0.0.2"}`, num(e["token"])))
	if l := r.want(200, "GET", "/v1/elections/boss", ""); l["holder_id"] != "me" || l["value"] != "10.0.0.2" {
		t.Errorf("leader %v", l)
	}
	r.want(200, "POST", "/v1/elections/boss:resign", fmt.Sprintf(`{"token":%d}`, num(e["token"])))

	r.want(200, "POST", "/v1/latches/l:count-down", `{"count":2}`)
	if l := r.want(200, "POST", "/v1/latches/l:count-down", ""); num(l["left"]) != 0 {
		t.Errorf("left %v", l)
	}
	r.want(200, "POST", "/v1/latches/l:wait", "")
	r.want(200, "POST", "/v1/barriers/b:arrive", `{"parties":1}`)

	r.want(200, "POST", "/v1/counters/n:add", `{"amount":5}`)
	if c := r.want(200, "POST", "/v1/counters/n:subtract", `{"amount":7}`); num(c["value"]) != -2 {
		t.Errorf("counted %v", c)
	}
	if c := r.want(200, "POST", "/v1/counters/n:compare-and-set", `{"expected":-2,"value":4}`); c["swapped"] != true {
		t.Errorf("swapped %v", c)
	}
	if c := r.want(200, "GET", "/v1/counters/n", ""); num(c["value"]) != 4 {
		t.Errorf("counter %v", c)
	}
	r.want(409, "GET", "/v1/counters/n?unsigned=true", "")
	r.want(200, "POST", "/v1/counters/n:set", `{"value":0}`)
	r.want(200, "DELETE", "/v1/counters/n", "")

	if q := r.want(200, "POST", "/v1/sequences/ids:reserve", `{"count":10}`); num(q["first"]) != 1 || num(q["count"]) != 10 {
		t.Errorf("reserved %v", q)
	}
	if q := r.want(200, "GET", "/v1/sequences/ids", ""); num(q["next"]) != 11 {
		t.Errorf("next %v", q)
	}

	r.want(200, "PUT", "/v1/kv/app/a", `{"value":"1","expect_revision":0}`)
	r.want(409, "PUT", "/v1/kv/app/a", `{"value":"2","expect_revision":0}`)
	r.want(200, "PUT", "/v1/kv/app/b", `{"value_base64":"/w=="}`)
	if k := r.want(200, "GET", "/v1/kv/app/a", ""); k["value"] != "1" || num(k["version"]) != 1 {
		t.Errorf("key %v", k)
	}
	if k := r.want(200, "GET", "/v1/keys/app/?limit=1", ""); len(k["keys"].([]any)) != 1 || k["more"] != true {
		t.Errorf("keys %v", k)
	}
	if k := r.want(200, "DELETE", "/v1/kv/app/a", ""); num(k["deleted"]) != 1 {
		t.Errorf("deleted %v", k)
	}
	r.want(404, "GET", "/v1/kv/app/a", "")

	o := r.want(200, "POST", "/v1/leases/:open", `{"ttl_ms":30000}`)
	id := num(o["lease_id"])
	r.want(200, "POST", "/v1/locks/x:acquire", fmt.Sprintf(`{"lease_id":%d}`, id))
	r.want(200, "POST", fmt.Sprintf("/v1/leases/%d:keep", id), `{"ttl_ms":60000}`)
	r.want(200, "DELETE", fmt.Sprintf("/v1/leases/%d", id), "")
	r.want(404, "DELETE", fmt.Sprintf("/v1/leases/%d", id), "")
	r.holders("x", 0)
}

func TestRESTBadInput(t *testing.T) {
	r := serve(t)
	long := strings.Repeat("n", 513)
	for _, c := range []struct {
		code               int
		method, path, body string
	}{
		{400, "POST", "/v1/locks/:acquire", ""},
		{400, "POST", "/v1/locks/" + long + ":acquire", ""},
		{400, "POST", "/v1/locks/a%0Ab:acquire", ""},
		{400, "POST", "/v1/locks/a%FF:acquire", ""},
		{400, "POST", "/v1/locks/x:acquire", `{"timeout_ms":-1}`},
		{400, "POST", "/v1/locks/x:acquire", `{"timeout_ms":2147483648}`},
		{400, "POST", "/v1/locks/x:acquire", `{"ttl_ms":1}`},
		{400, "POST", "/v1/locks/x:acquire", `{"ttl_ms":1e300}`},
		{400, "POST", "/v1/locks/x:acquire", `{"ttl":5}`},
		{400, "POST", "/v1/locks/x:acquire", `{"holder_id":5}`},
		{400, "POST", "/v1/locks/x:acquire", `{`},
		{400, "POST", "/v1/locks/x:acquire", `{} {}`},
		{400, "POST", "/v1/locks/x:acquire", `null x`},
		{400, "POST", "/v1/locks/x:acquire", `[]`},
		{413, "POST", "/v1/locks/x:acquire", `{"metadata":"` + strings.Repeat("m", 70_000) + `"}`},
		{400, "POST", "/v1/locks/x:acquire", `{"metadata":"` + strings.Repeat("m", 5_000) + `"}`},
		{404, "POST", "/v1/locks/x:acquire", `{"lease_id":44}`},
		{400, "POST", "/v1/locks/x:acquire", `{"lease_id":-4}`},
		{410, "POST", "/v1/locks/x:release", `{"token":9}`},
		{400, "POST", "/v1/locks/x:release", ``},
		{400, "POST", "/v1/locks/x:release", `{"token":-9}`},
		{410, "POST", "/v1/locks/x:renew", `{"token":9}`},
		{400, "POST", "/v1/locks/x:renew", `{"token":9,"ttl_ms":-1}`},
		{405, "PUT", "/v1/locks/x", ""},
		{405, "POST", "/v1/locks/x:explode", ""},
		{405, "POST", "/v1/watch", ""},
		{404, "POST", "/v1/nothing/x:acquire", ""},
		{404, "GET", "/v1/", ""},
		{400, "POST", "/v1/leases/abc:open", ""},
		{400, "POST", "/v1/leases/7:open", `{"ttl_ms":-5}`},
		{400, "GET", "/v1/watch?from=x", ""},
		{400, "GET", "/v1/keys/?limit=-1", ""},
		{400, "GET", "/v1/locks/x?limit=-5", ""},
		{400, "GET", "/v1/locks/x?limit=-9223372036854775808", ""},
		{400, "GET", "/v1/locks/x?limit=9223372036854775808", ""},
		{400, "GET", "/v1/locks/x?limit=1.5", ""},
		{400, "GET", "/v1/semaphores/x?limit=1&limit=1", ""},
		{400, "GET", "/v1/leases/1?limit=-1", ""},
		{400, "GET", "/v1/keys/?limti=1", ""},
		{400, "GET", "/v1/keys/?limit=1&limit=2", ""},
		{400, "GET", "/v1/keys/?limit=1", `{"limit":1}`},
		{400, "POST", "/v1/locks/x:acquire?ttl_ms=5000", `{"timeout_ms":0}`},
		{400, "POST", "/v1/locks/x:acquire", `{"lease_id":44,"ttl_ms":5000}`},
		{400, "POST", "/v1/locks/x:renew", `{"ttl_ms":5000}`},
		{400, "GET", "/v1/watch?prefex=x", ""},
		{400, "GET", "/v1/watch?exact=1", ""},
		{400, "GET", "/v1/watch?from=1&from=2", ""},
		{400, "PUT", "/v1/kv/k", `{}`},
		{400, "PUT", "/v1/kv/k", `{"value":"a","value_base64":"Yg=="}`},
		{400, "POST", "/v1/counters/n:set", `{}`},
		{400, "POST", "/v1/counters/n:set", `{"unsigned":true,"value":5}`},
		{400, "POST", "/v1/counters/n:set", `{"unsigned_value":5}`},
		{400, "POST", "/v1/counters/n:compare-and-set", `{"expected":0}`},
		{400, "POST", "/v1/counters/n:compare-and-set", `{"unsigned":true,"expected":0,"value":5}`},
		{400, "POST", "/v1/counters/n:compare-and-set", `{"unsigned":true,"unsigned_expected":0,"value":5}`},
		{404, "GET", "/v1/leases/7", ""},
		{400, "GET", "/v1/leases/-7", ""},
		{400, "GET", "/v1/leases/x", ""},
	} {
		out := r.want(c.code, c.method, c.path, c.body)
		if e, _ := out["error"].(string); !strings.Contains(e, ": ") || out["not_done"] != true {
			t.Errorf("%s %s: the answer does not say what is wrong: %v", c.method, c.path, out)
		}
	}
	r.want(400, "POST", "/v1/locks/x:acquire", "", "Holdfast-Namespace", "holdfast.x")
	r.want(400, "POST", "/v1/locks/x:acquire", "", "Idempotency-Key", long)
	r.untouched()
}

func TestRESTNamespaceAndKey(t *testing.T) {
	r := serve(t)
	r.want(200, "POST", "/v1/locks/x:acquire", "")
	r.want(200, "POST", "/v1/locks/x:acquire", `{"timeout_ms":0}`, "Holdfast-Namespace", "team")
	for range 2 {
		if c := r.want(200, "POST", "/v1/counters/n:add", `{"amount":5}`, "Idempotency-Key", "once"); num(c["value"]) != 5 {
			t.Errorf("counted %v", c)
		}
	}
}

// Every field that the OpenAPI document has for what is taken is one that the call takes.
func TestREST_TermsAreTaken(t *testing.T) {
	r := serve(t)
	paths := r.want(200, "GET", "/openapi.json", "")["paths"].(map[string]any)
	values := map[string]string{ // of each field, such that it can be taken; lease_id would need a lease
		"holder_id": `"w"`, "ttl_ms": "60000", "timeout_ms": "0", "metadata": `"m"`, "value": `"v"`, "mode": `"read"`, "weight": "1", "limit": "3",
	}
	for _, path := range []string{"locks/{name}:acquire", "rwlocks/{name}:acquire", "semaphores/{name}:acquire", "elections/{name}:campaign"} {
		at := paths["/v1/"+path].(map[string]any)["post"].(map[string]any)["requestBody"].(map[string]any)["content"].(map[string]any)
		fields := at["application/json"].(map[string]any)["schema"].(map[string]any)["properties"].(map[string]any)
		var all []string
		for field := range fields {
			if field != "lease_id" {
				all = append(all, fmt.Sprintf("%q:%s", field, values[field]))
			}
		}
		r.want(200, "POST", "/v1/"+strings.ReplaceAll(path, "{name}", "n-"+path[:2]), "{"+strings.Join(all, ",")+"}")
	}
}

// A call with a method that its path does not have is told which ones it has.
func TestREST_MethodsOfAPath(t *testing.T) {
	r := serve(t)
	for path, want := range map[string]string{
		"/v1/kv/a/b": "DELETE, GET, PUT", "/v1/locks/x": "GET", "/v1/locks/x:acquire": "GET, POST", "/v1/watch": "GET",
		"/holdfast.v1.LockService/Lock": "POST", "/holdfast.v1.WatchService/Watch": "POST",
	} {
		req, err := http.NewRequestWithContext(r.ctx, "PATCH", "http://"+r.addr+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := r.web.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if got := res.Header.Get("Allow"); res.StatusCode != 405 || got != want {
			t.Errorf("%s: %s, Allow: %s; want %s", path, res.Status, got, want)
		}
	}
}

// The OpenAPI document has every path, and docs/openapi.json is that document.
func TestOpenAPI(t *testing.T) {
	r := serve(t)
	got := r.want(200, "GET", "/openapi.json", "")
	paths := got["paths"].(map[string]any)
	for _, p := range []string{"/v1/locks/{name}:acquire", "/v1/locks/{name}:release", "/v1/locks/{name}:renew", "/v1/kv/{name}", "/v1/watch"} {
		if paths[p] == nil {
			t.Errorf("%s is missing", p)
		}
	}
	for path, ops := range paths {
		for method, op := range ops.(map[string]any) {
			if answers := op.(map[string]any)["responses"].(map[string]any); answers["default"] == nil {
				t.Errorf("%s %s: the document does not describe a failure", method, path)
			}
			if method == "get" && path == "/v1/watch" {
				continue
			}
			code, out := r.do(strings.ToUpper(method), strings.ReplaceAll(path, "{name}", strings.Repeat("n", 600)), "")
			if code == 404 || code == 405 || code == 501 {
				t.Errorf("%s %s is in the document, but nobody serves it: %v", method, path, out)
			}
			checkDescribed(t, path, op)
		}
	}
	want, err := json.MarshalIndent(got, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	const file = "../../../docs/openapi.json"
	if os.Getenv("HOLDFAST_WRITE_OPENAPI") != "" {
		if err := os.WriteFile(file, append(want, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(file)
	if err != nil || strings.TrimSpace(string(have)) != string(want) {
		t.Errorf("%s is not what the node serves (%v): HOLDFAST_WRITE_OPENAPI=1 go test ./internal/node/api -run OpenAPI writes it", file, err)
	}
}

// checkDescribed expects a description of every property.
func checkDescribed(t *testing.T, path string, v any) {
	t.Helper()
	m, ok := v.(map[string]any)
	if !ok {
		return
	}
	for k, x := range m {
		if k == "properties" {
			for name, p := range x.(map[string]any) {
				if name == "" || p.(map[string]any)["description"] == "" {
					t.Errorf("%s: property %q is not described", path, name)
				}
			}
		}
		checkDescribed(t, path, x)
	}
}

func TestServerSentEvents(t *testing.T) {
	r := serve(t)
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", "http://"+r.addr+"/v1/watch?prefix=jobs/&pattern=lock:*", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := r.web.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("answered %s", res.Status)
	}
	lines := bufio.NewScanner(res.Body)
	next := func() (event, data string) {
		for lines.Scan() && lines.Text() != "" {
			if v, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				event = v
			}
			if v, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				data = v
			}
		}
		return event, data
	}
	if e, d := next(); e != "ready" {
		t.Fatalf("began with %s %s", e, d)
	}
	r.want(200, "POST", "/v1/locks/other:acquire", "")
	r.want(200, "POST", "/v1/locks/jobs/a:acquire", `{"holder_id":"w"}`)
	e, d := next()
	if e != "event" || json.Unmarshal([]byte(d), &map[string]any{}) != nil || !strings.Contains(d, `"jobs/a"`) || !strings.Contains(d, `"acquired"`) {
		t.Errorf("got %s %s", e, d)
	}
}

// The same services are there as JSON under their gRPC names.
func TestConnectJSON(t *testing.T) {
	r := serve(t)
	a := r.want(200, "POST", "/holdfast.v1.LockService/Lock", `{"name":"x","timeoutMs":"0"}`)
	if a["acquired"] != true || a["fencingToken"] == "" {
		t.Fatalf("got %v", a)
	}
	b := r.want(200, "POST", "/holdfast.v1.LockService/TryLock", `{"name":"x"}`)
	if b["acquired"] == true {
		t.Errorf("got %v", b)
	}
	for path, body := range map[string]string{
		"RWLockService/AcquireRead": `{"name":"rw"}`, "SemaphoreService/Acquire": `{"name":"s","limit":2}`, "ElectionService/Campaign": `{"name":"e"}`,
		"LatchService/CountDown": `{"name":"l","count":2,"by":1}`, "BarrierService/Arrive": `{"name":"b","parties":1}`, "CounterService/Add": `{"name":"n","amount":1}`,
		"SequenceService/Reserve": `{"name":"q"}`, "KVService/Put": `{"key":"k","value":"dg=="}`, "SessionService/Open": `{}`, "FenceService/Write": `{"register":"r","token":1}`, "FenceService/Forget": `{"register":"r","token":1}`,
		"GuardService/Evaluate": `{"name":"g","when":"{\"key\":\"k\"}"}`, "LimitService/Allow": `{"name":"m","rate":{"count":2,"perMs":1000}}`, "AdminService/Status": `{}`, "InspectService/Inspect": `{"name":"x"}`,
	} {
		r.want(200, "POST", "/holdfast.v1."+path, body)
	}
	bad := r.want(400, "POST", "/holdfast.v1.LockService/Lock", `{"name":""}`)
	if bad["code"] != "invalid_argument" || bad["details"] == nil {
		t.Errorf("refused with %v", bad)
	}
	r.want(400, "POST", "/holdfast.v1.LockService/Lock", `{"nom":"x"}`)
	r.want(400, "POST", "/holdfast.v1.LockService/Lock", `{`)
	r.want(200, "POST", "/holdfast.v1.LockService/TryLock", `{"name":"x"}`, "Holdfast-Namespace", "team")
	code, out := r.do("POST", "/holdfast.v1.LockService/Lock", `{"name":"y","owner":"`+strings.Repeat("o", 70_000)+`"}`)
	if code != 429 || out["code"] != "resource_exhausted" {
		t.Errorf("a long request: %d %v", code, out)
	}
}

func TestHealthAndMetrics(t *testing.T) {
	r := serve(t)
	r.want(200, "POST", "/v1/locks/secret-name:acquire", "")
	for path, say := range map[string]string{
		"/healthz": "ok", "/readyz": `"ready":true`,
		"/metrics": `holdfast_calls_total{code="OK",method="locks.acquire POST",service="REST"} 1`,
	} {
		page := r.page(path)
		if !strings.Contains(page, say) {
			t.Errorf("%s: %s", path, page)
		}
		if strings.Contains(page, "secret-name") {
			t.Errorf("%s tells names", path)
		}
	}
}
