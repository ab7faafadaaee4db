package limithttp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast/edge"
	"github.com/holdfast-io/holdfast/limit"
	"github.com/holdfast-io/holdfast/limit/limithttp"
	"github.com/holdfast-io/holdfast/limit/limitlocal"
)

var rate = limit.Rate{Count: 2, Per: time.Minute, Name: "api"}

func local(t testing.TB) *limitlocal.Limiter {
	l, err := limitlocal.New(rate)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

var fine = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "fine") })

// get asks a limited handler as a client of an address.
func get(h http.Handler, from string, forwarded ...string) *http.Response {
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = from
	for _, f := range forwarded {
		r.Header.Add("X-Forwarded-For", f)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func Example() {
	limiter, _ := limitlocal.New(rate) // or space.Limiter("api", rate)
	h := limithttp.New(limiter, limithttp.Options{Rate: rate})(fine)
	for range 3 {
		answer := get(h, "192.0.2.1:1234")
		left, _, _ := strings.Cut(answer.Header.Get("RateLimit"), ";t=") // t: after so many seconds there is more
		fmt.Println(answer.StatusCode, left)
	}
	// Output:
	// 200 "api";r=1
	// 200 "api";r=0
	// 429 "api";r=0
}

// far is a limiter that is full again in the longest of times.
type far struct{}

func (far) AllowN(context.Context, string, int64) (limit.Decision, error) {
	return limit.Decision{Allowed: true, Limit: 2, ResetAfter: math.MaxInt64}, nil
}

// The longest time does not become one that is over.
func TestHeaders_Longest(t *testing.T) {
	h := limithttp.New(far{}, limithttp.Options{Rate: rate, Legacy: true})(fine)
	if got := get(h, "192.0.2.1:1").Header.Get("X-RateLimit-Reset"); got != "9223372037" {
		t.Errorf("the reset is in %s s", got)
	}
}

// TestHeaders: what is told of seconds is of one moment.
func TestHeaders(t *testing.T) { synctest.Test(t, headers) }

func headers(t *testing.T) {
	h := limithttp.New(local(t), limithttp.Options{Rate: rate, Legacy: true})(fine)
	get(h, "192.0.2.1:1")
	answer := get(h, "192.0.2.1:2")
	for name, want := range map[string]string{"RateLimit": `"api";r=0;t=60`, "RateLimit-Policy": `"api";q=2;w=60`, "Retry-After": "",
		"X-RateLimit-Limit": "2", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "60"} {
		if got := answer.Header.Get(name); got != want {
			t.Errorf("%s is %q, not %q", name, got, want)
		}
	}
	time.Sleep(time.Second / 2) // what is left is told in whole seconds, after which the client is not early
	refused := get(h, "192.0.2.1:3")
	var problem struct {
		Type, Title string
		Status      int
		Policies    []string `json:"violated-policies"`
	}
	if err := json.NewDecoder(refused.Body).Decode(&problem); err != nil {
		t.Fatal(err)
	}
	if refused.StatusCode != 429 || refused.Header.Get("Retry-After") != "30" || refused.Header.Get("Content-Type") != "application/problem+json" ||
		problem.Status != 429 || len(problem.Policies) != 1 || problem.Policies[0] != "api" {
		t.Errorf("a refusal is %d %v %+v", refused.StatusCode, refused.Header, problem)
	}
	if other := get(h, "192.0.2.2:1"); other.StatusCode != 200 {
		t.Error("another client is refused")
	}
}

// TestCostAboveTheLimit is refused for good: no time is told.
func TestCostAboveTheLimit(t *testing.T) {
	h := limithttp.New(local(t), limithttp.Options{Cost: func(*http.Request) int64 { return 3 }})(fine)
	answer := get(h, "192.0.2.1:1")
	if answer.StatusCode != 429 || answer.Header.Get("Retry-After") != "" || answer.Header.Get("RateLimit") != `"default";r=2` {
		t.Errorf("3 of 2: %d %v", answer.StatusCode, answer.Header)
	}
}

// failing is a limiter that cannot be reached.
type failing struct{}

func (failing) AllowN(context.Context, string, int64) (limit.Decision, error) {
	return limit.Decision{}, errors.New("unreachable")
}

func TestFailure(t *testing.T) {
	for name, c := range map[string]struct {
		o    limithttp.Options
		want [3]int
	}{
		"open":                  {limithttp.Options{}, [3]int{200, 200, 200}},
		"closed":                {limithttp.Options{OnFailure: limithttp.Closed}, [3]int{503, 503, 503}},
		"local":                 {limithttp.Options{OnFailure: limithttp.Local, Local: local(t)}, [3]int{200, 200, 429}},
		"local without a local": {limithttp.Options{OnFailure: limithttp.Local}, [3]int{200, 200, 200}},
		"closed in the shadow":  {limithttp.Options{OnFailure: limithttp.Closed, Shadow: true}, [3]int{200, 200, 200}},
	} {
		seen := 0
		c.o.Observe = func(_ *http.Request, _ limit.Decision, err error) {
			if err != nil {
				seen++
			}
		}
		h := limithttp.New(failing{}, c.o)(fine)
		var got [3]int
		for i := range got {
			got[i] = get(h, "192.0.2.1:1").StatusCode
		}
		if got != c.want || seen != 3 {
			t.Errorf("%s: %v, not %v; %d failures were told", name, got, c.want, seen)
		}
	}
}

// silent is a limiter that never answers.
type silent struct{}

func (silent) AllowN(ctx context.Context, _ string, _ int64) (limit.Decision, error) {
	<-ctx.Done()
	return limit.Decision{}, ctx.Err()
}

// A limiter that is silent has failed after Options.Timeout.
func TestSilent(t *testing.T) {
	for name, c := range map[string]struct {
		o     limithttp.Options
		want  int
		after time.Duration
	}{
		"default": {limithttp.Options{}, 200, 500 * time.Millisecond},
		"open":    {limithttp.Options{Timeout: time.Second}, 200, time.Second},
		"closed":  {limithttp.Options{Timeout: time.Minute, OnFailure: limithttp.Closed}, 503, time.Minute},
		"local":   {limithttp.Options{Timeout: time.Second, OnFailure: limithttp.Local, Local: spent(t)}, 429, time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			got := get(limithttp.New(silent{}, c.o)(fine), "192.0.2.1:1").StatusCode
			if took := time.Since(start); got != c.want || took != c.after {
				t.Errorf("%s: %d after %s, not %d after %s", name, got, took, c.want, c.after)
			}
		})
	}
}

// spent is a limiter of which nothing is left for the client of TestSilent.
func spent(t testing.TB) *limitlocal.Limiter {
	l := local(t)
	if _, err := l.AllowN(t.Context(), "192.0.2.1", 2); err != nil {
		t.Fatal(err)
	}
	return l
}

// A client that cancels its request does not pass by a limit that fails open.
func TestClientLeaves(t *testing.T) {
	l := hasty{local(t)}
	h := limithttp.New(l, limithttp.Options{})(fine)
	for _, want := range []int{200, 200, 429} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r := httptest.NewRequestWithContext(ctx, "GET", "/", nil)
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != want {
			t.Errorf("%d, not %d", w.Code, want)
		}
	}
}

// hasty fails if its caller has left, as a limiter far away does.
type hasty struct{ l limithttp.Limiter }

func (h hasty) AllowN(ctx context.Context, key string, n int64) (limit.Decision, error) {
	if err := ctx.Err(); err != nil {
		return limit.Decision{}, err
	}
	return h.l.AllowN(ctx, key, n)
}

// Nor does it where a limiter of another kind decides instead.
func TestClientLeavesLocal(t *testing.T) {
	h := limithttp.New(failing{}, limithttp.Options{OnFailure: limithttp.Local, Local: hasty{local(t)}})(fine)
	for _, want := range []int{200, 200, 429} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "/", nil)); w.Code != want {
			t.Errorf("%d, not %d", w.Code, want)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		h := limithttp.New(silent{}, limithttp.Options{OnFailure: limithttp.Local, Local: silent{}})(fine)
		if got := get(h, "192.0.2.1:1").StatusCode; got != 200 || time.Since(start) != time.Second {
			t.Errorf("two that are silent: %d after %s", got, time.Since(start))
		}
	})
}

// TestSeveral: handlers around each other tell a policy each, and what is left by the old names is that of the one that
// leaves least, whichever that is.
func TestSeveral(t *testing.T) { synctest.Test(t, several) }

func several(t *testing.T) {
	few, many := rate, limit.Rate{Count: 9, Per: time.Hour, Name: "day"}
	limited := func(r limit.Rate) func(http.Handler) http.Handler {
		l, err := limitlocal.New(r)
		if err != nil {
			t.Fatal(err)
		}
		return limithttp.New(l, limithttp.Options{Rate: r, Legacy: true})
	}
	for _, rates := range [][2]limit.Rate{{few, many}, {many, few}} {
		h := limited(rates[0])(limited(rates[1])(fine))
		answer := get(h, "192.0.2.1:1")
		fields, policies := answer.Header.Values("RateLimit"), answer.Header.Values("RateLimit-Policy")
		if len(fields) != 2 || len(policies) != 2 || !strings.HasPrefix(fields[0], `"`+rates[0].Name+`";r=`) || !strings.HasPrefix(policies[1], `"`+rates[1].Name+`";q=`) {
			t.Errorf("%q and %q", fields, policies)
		}
		if left := answer.Header.Get("X-RateLimit-Remaining"); left != "1" || answer.Header.Get("X-RateLimit-Limit") != "2" {
			t.Errorf("%s are left of %s", left, answer.Header.Get("X-RateLimit-Limit"))
		}
		get(h, "192.0.2.1:1")
		if refused := get(h, "192.0.2.1:1"); refused.StatusCode != 429 || refused.Header.Get("X-RateLimit-Remaining") != "0" || refused.Header.Get("Retry-After") != "30" {
			t.Errorf("the third of 2: %d %v", refused.StatusCode, refused.Header)
		}
	}
}

// TestPolicyNames: names that no string of a header can have stay apart, in both fields and in the problem.
func TestPolicyNames(t *testing.T) {
	for name, want := range map[string]string{
		"": `"default"`, "a b%20": `"a b%2520"`, "gr%C3%BCn": `"gr%25C3%25BCn"`, `q"\`: `"q\"\\"`, "gr\u00fcn": `"gr%C3%BCn"`, "gr\u00f6n 5%": `"gr%C3%B6n 5%25"`, "a\r\nb": `"a%0D%0Ab"`, "\xff": `"%FF"`,
	} {
		r := limit.Rate{Count: 1, Per: time.Minute, Name: name}
		l, err := limitlocal.New(r)
		if err != nil {
			t.Fatal(err)
		}
		h := limithttp.New(l, limithttp.Options{Rate: r})(fine)
		get(h, "192.0.2.1:1")
		refused := get(h, "192.0.2.1:1")
		var problem struct {
			Policies []string `json:"violated-policies"`
		}
		if err := json.NewDecoder(refused.Body).Decode(&problem); err != nil {
			t.Fatal(err)
		}
		plain := strings.NewReplacer(`\\`, `\`, `\"`, `"`).Replace(want[1 : len(want)-1])
		if field, policy := refused.Header.Get("RateLimit"), refused.Header.Get("RateLimit-Policy"); !strings.HasPrefix(field, want+";r=") || !strings.HasPrefix(policy, want+";q=") || problem.Policies[0] != plain {
			t.Errorf("%q is told as %s and %s, and %q in the problem", name, field, policy, problem.Policies)
		}
	}
}

// TestMethods: a request is counted whatever its method, and the refusal of a HEAD has its headers and no body.
func TestMethods(t *testing.T) {
	server := httptest.NewServer(limithttp.New(local(t), limithttp.Options{Rate: rate})(fine))
	t.Cleanup(server.Close)
	for i, method := range []string{"OPTIONS", "HEAD", "HEAD", "OPTIONS"} {
		r, err := http.NewRequestWithContext(t.Context(), method, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if refused := i > 1; refused != (answer.StatusCode == 429) || refused != (answer.Header.Get("Retry-After") != "") || answer.Header.Get("RateLimit") == "" {
			t.Errorf("number %d, %s: %d %v", i+1, method, answer.StatusCode, answer.Header)
		}
		if method == "HEAD" && len(body) > 0 {
			t.Errorf("a HEAD is answered with %q", body)
		}
	}
}

// TestTooLong: a key of 10 MB is refused with 400 by every kind of limiter, and remembered by none.
func TestTooLong(t *testing.T) {
	long := strings.Repeat("k", 10<<20)
	node, err := edge.Open(edge.Config{Actor: "a"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = node.Close() })
	atEdge, err := node.Limiter("l", edge.LimiterConfig{Rate: rate})
	if err != nil {
		t.Fatal(err)
	}
	for what, l := range map[string]limithttp.Limiter{"local": local(t), "edge": atEdge} {
		h := limithttp.New(l, limithttp.Options{Key: func(*http.Request) (string, error) { return long, nil }})(fine)
		if got := get(h, "192.0.2.1:1").StatusCode; got != 400 {
			t.Errorf("%s: %d", what, got)
		}
	}
	if atEdge.Keys() != 0 {
		t.Errorf("%d keys are remembered", atEdge.Keys())
	}
}

// invalid is a limiter that cannot count what it is asked for.
type invalid struct{}

func (invalid) AllowN(context.Context, string, int64) (limit.Decision, error) {
	return limit.Decision{}, fmt.Errorf("the key is too long: %w", fs.ErrInvalid)
}

// A client with a key or cost that is not valid is refused, whatever is to happen when the limiter
// fails: else it would choose to be without a limit.
func TestInvalid(t *testing.T) {
	for _, o := range []limithttp.Options{{}, {OnFailure: limithttp.Closed}, {OnFailure: limithttp.Local, Local: local(t)}} {
		if got := get(limithttp.New(invalid{}, o)(fine), "192.0.2.1:1").StatusCode; got != 400 {
			t.Errorf("%v: %d", o.OnFailure, got)
		}
	}
}

// TestShadow decides and tells, and refuses nobody.
func TestShadow(t *testing.T) {
	refused := 0
	h := limithttp.New(local(t), limithttp.Options{Shadow: true, Observe: func(_ *http.Request, d limit.Decision, _ error) {
		if !d.Allowed {
			refused++
		}
	}})(fine)
	for range 5 {
		if answer := get(h, "192.0.2.1:1"); answer.StatusCode != 200 || answer.Header.Get("RateLimit") != "" {
			t.Errorf("in the shadow: %d %v", answer.StatusCode, answer.Header)
		}
	}
	if refused != 3 {
		t.Errorf("%d of 5 at a burst of 2 would be refused", refused)
	}
	if answer := get(h, "@"); answer.StatusCode != 200 || refused != 4 { // of a Unix socket
		t.Errorf("a client without an address: %d, told %d times", answer.StatusCode, refused)
	}
}

// What a stranger writes costs nothing: no more of X-Forwarded-For is read than is
// trusted.
func TestClient_LongHeader(t *testing.T) {
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("X-Forwarded-For", strings.Repeat(",", 1_000_000)+"198.51.100.7")
	for peer, want := range map[string]string{"192.0.2.1:5": "192.0.2.1", "10.0.0.1:5": "198.51.100.7"} {
		r.RemoteAddr = peer
		client := limithttp.Client(netip.MustParsePrefix("10.0.0.0/8"))
		if key, err := client(r); err != nil || key != want {
			t.Errorf("%s: %q, %v", peer, key, err)
		}
		if size := testing.Benchmark(func(b *testing.B) {
			for range b.N {
				_, _ = client(r)
			}
		}).AllocedBytesPerOp(); size > 1000 {
			t.Errorf("%s: a header of a million bytes costs %d bytes", peer, size)
		}
	}
}

func TestClient(t *testing.T) {
	proxies := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8:1::/48"), netip.MustParsePrefix("::ffff:172.16.0.0/112")}
	for _, c := range []struct {
		peer      string
		forwarded []string
		want      string
	}{
		{"192.0.2.1:5", nil, "192.0.2.1"},
		{"192.0.2.1:5", []string{"198.51.100.7"}, "192.0.2.1"}, // written by the client
		{"10.0.0.1:5", []string{"198.51.100.7"}, "198.51.100.7"},
		{"10.0.0.1:5", []string{"203.0.113.9, 198.51.100.7"}, "198.51.100.7"}, // the first was written by the client
		{"10.0.0.1:5", []string{"203.0.113.9, 198.51.100.7, 10.9.9.9"}, "198.51.100.7"},
		{"10.0.0.1:5", []string{"203.0.113.9", "198.51.100.7"}, "198.51.100.7"}, // two lines are one list
		{"10.0.0.1:5", []string{"198.51.100.7:443"}, "198.51.100.7"},
		{"10.0.0.1:5", []string{"198.51.100.7, nonsense"}, "10.0.0.1"},
		{"10.0.0.1:5", []string{"10.0.0.2"}, "10.0.0.2"},
		{"10.0.0.1:5", nil, "10.0.0.1"},
		{"[::ffff:10.0.0.1]:5", []string{"198.51.100.7"}, "198.51.100.7"},
		{"192.0.2.1", nil, "192.0.2.1"}, // as earlier handlers put it there
		{"10.0.0.1", []string{"198.51.100.7"}, "198.51.100.7"},
		{"2001:db8:2::1", nil, "2001:db8:2::/64"},
		{"[2001:db8:2::1]:5", nil, "2001:db8:2::/64"},
		{"[2001:db8:2::ffff]:5", nil, "2001:db8:2::/64"},
		{"[2001:db8:1::1]:5", []string{"[2001:db8:3:4:5::6]:80"}, "2001:db8:3:4::/64"},
		{"[fe80::1%eth0]:5", nil, "fe80::/64"}, // a zone is of this machine, and no key of its own
		{"fe80::1%eth0", nil, "fe80::/64"},
		{"10.0.0.1:5", []string{"fe80::1%25eth0"}, "fe80::/64"},
		{"10.0.0.1:5", []string{"::ffff:198.51.100.7"}, "198.51.100.7"},
		{"172.16.0.1:5", []string{"198.51.100.7"}, "198.51.100.7"}, // named as IPv4 in IPv6
		{"[::ffff:172.16.0.1]:5", []string{"198.51.100.7"}, "198.51.100.7"},
		{"172.17.0.1:5", []string{"198.51.100.7"}, "172.17.0.1"},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = c.peer
		for _, f := range c.forwarded {
			r.Header.Add("X-Forwarded-For", f)
		}
		if got, err := limithttp.Client(proxies...)(r); got != c.want || err != nil {
			t.Errorf("%s with %q is %q (%v), not %q", c.peer, c.forwarded, got, err, c.want)
		}
	}
	h := limithttp.New(local(t), limithttp.Options{})(fine)
	if answer := get(h, "@"); answer.StatusCode != 400 {
		t.Errorf("without an address: %d", answer.StatusCode)
	}
}

// TestUnixSocket: clients of a server on a Unix socket are served; behind a proxy there
// each has a key of its own.
func TestUnixSocket(t *testing.T) {
	for _, c := range []struct {
		remote    string
		proxies   []netip.Prefix
		forwarded string
		want      string
	}{
		{"@", nil, "198.51.100.7", "unix"},
		{"192.0.2.1:0", nil, "198.51.100.7", "192.0.2.1"}, // as an earlier handler has put it
		{"192.0.2.1", nil, "198.51.100.7", "192.0.2.1"},
		{"@", []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, "", "unix"},
		{"@", []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, "203.0.113.9, 198.51.100.7, 10.0.0.1", "198.51.100.7"},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = c.remote
		r.Header.Set("X-Forwarded-For", c.forwarded)
		r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(&net.UnixAddr{Name: "/run/s", Net: "unix"})))
		if got, err := limithttp.Client(c.proxies...)(r); got != c.want || err != nil {
			t.Errorf("%q behind %v is %q (%v), not %q", c.forwarded, c.proxies, got, err, c.want)
		}
	}
	dir, err := os.MkdirTemp("", "unix") // a socket's path has to be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: limithttp.New(local(t), limithttp.Options{})(fine)}
	go func() { _ = server.Serve(socket) }()
	t.Cleanup(func() { _ = server.Close() })
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket.Addr().String())
	}}
	t.Cleanup(transport.CloseIdleConnections)
	answer, err := (&http.Client{Transport: transport}).Get("http://unix/")
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode != 200 {
		t.Errorf("by a Unix socket: %d", answer.StatusCode)
	}
}
