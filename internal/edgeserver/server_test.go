package edgeserver_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"github.com/holdfast-io/holdfast/edge"
	"github.com/holdfast-io/holdfast/edge/edgetest"
	"github.com/holdfast-io/holdfast/internal/edgeserver"
	"github.com/holdfast-io/holdfast/limit"
	edgev1 "github.com/holdfast-io/holdfast/proto/holdfast/edge/v1"
	"github.com/holdfast-io/holdfast/proto/holdfast/edge/v1/edgev1connect"
)

var perDay = limit.Rate{Name: "requests", Count: 3, Per: 24 * time.Hour, Algorithm: limit.FixedWindow}

func config(t *testing.T, hub *edgetest.Hub, actor string) *edgeserver.Config {
	t.Helper()
	return configOf(t, hub, actor, perDay)
}

func configOf(t *testing.T, hub *edgetest.Hub, actor string, rate limit.Rate) *edgeserver.Config {
	t.Helper()
	n, err := edge.Open(edge.Config{Actor: actor, Link: hub.Link(actor)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	l, err := n.Limiter("l", edge.LimiterConfig{Rate: rate, MaxKeys: 10})
	if err != nil {
		t.Fatal(err)
	}
	return &edgeserver.Config{Node: n, Limiter: l, Rate: rate}
}

// ask is the answer to a request, as far as it is of interest.
func ask(t *testing.T, c *edgeserver.Config, method, path string) (*http.Response, string) {
	t.Helper()
	w := httptest.NewRecorder()
	edgeserver.Handler(c).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, nil))
	body, err := io.ReadAll(w.Result().Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.Result(), string(body)
}

// TestCheck: by HTTP a check is allowed with 200 and denied with 429, with the headers
// that clients know; what is no check is refused.
func TestCheck(t *testing.T) {
	c := config(t, edgetest.NewHub(edgetest.Faults{}), "a")
	for i, want := range []int{200, 200, 200, 429} {
		r, body := ask(t, c, "GET", "/v1/check?key=k")
		if r.StatusCode != want || !strings.Contains(r.Header.Get("RateLimit"), fmt.Sprintf("r=%d", max(2-i, 0))) {
			t.Fatalf("check %d: %s %v %s", i, r.Status, r.Header, body)
		}
		if want == 429 && (r.Header.Get("Retry-After") == "" || !strings.Contains(body, "quota-exceeded")) {
			t.Errorf("a denial: %v %s", r.Header, body)
		}
	}
	if r, body := ask(t, c, "GET", "/v1/count?key=k"); r.StatusCode != 200 || body != `{"count":3,"key":"k"}`+"\n" {
		t.Errorf("count: %s %s", r.Status, body)
	}
	for path, want := range map[string]int{
		"/v1/check": 400, "/v1/check?key=k&cost=-1": 400, "/v1/check?key=k&cost=x": 400, "/v1/check?key=" + strings.Repeat("k", 600): 400,
		"/v1/check?key=new&cost=4": 429, "/v1/check?key=new&cost=0": 200, "/v1/check?key=new&cost=3": 200, "/v1/count": 400, "/nothing": 404, "/healthz": 200,
	} {
		if r, body := ask(t, c, "GET", path); r.StatusCode != want {
			t.Errorf("%s: %s %s", path, r.Status, body)
		}
	}
	if r, _ := ask(t, c, "DELETE", "/v1/check?key=k"); r.StatusCode != 405 {
		t.Errorf("DELETE: %s", r.Status)
	}
	for i := range 10 {
		ask(t, c, "POST", fmt.Sprint("/v1/check?key=", i))
	}
	if r, _ := ask(t, c, "POST", "/v1/check?key=no-room"); r.StatusCode != 503 {
		t.Errorf("without room: %s", r.Status)
	}
}

// TestCheck_NamesWhatIsWrong: a request that is refused is told which of its parameters is wrong, and takes nothing.
func TestCheck_NamesWhatIsWrong(t *testing.T) {
	c := config(t, edgetest.NewHub(edgetest.Faults{}), "a")
	for query, want := range map[string]string{
		"check?key=k&cost=abc":                  `the cost is no number from 0 on: "abc"`,
		"check?key=k&cost=":                     `the cost is no number from 0 on: ""`,
		"check?key=k&cost=-1":                   `the cost is no number from 0 on: "-1"`,
		"check?key=k&cost=99999999999999999999": `the cost is no number from 0 on: "99999999999999999999"`,
		"check?key=k&costs=50":                  `the parameter "costs" is unknown; there are ["key" "cost"]`,
		"check?key=k&key=j":                     `the parameter "key" is given 2 times; give it once`,
		"check?key=k&cost=1&cost=2":             `the parameter "cost" is given 2 times; give it once`,
		"check?key=" + strings.Repeat("k", 513): `the parameter "key" has 513 bytes; at most 512 are allowed`,
		"count?key=" + strings.Repeat("k", 513): `the parameter "key" has 513 bytes; at most 512 are allowed`,
		"check?cost=1":                          `the request names no key: add the parameter key`,
		"check?key=k&cost=%zz":                  `the form cannot be read: invalid URL escape "%zz"`,
		"count?key=k&cost=1":                    `the parameter "cost" is unknown; there are ["key"]`,
		"count?key=k&key=j":                     `the parameter "key" is given 2 times; give it once`,
	} {
		r, body := ask(t, c, "GET", "/v1/"+query)
		var problem struct {
			Title  string
			Status int
		}
		if err := json.Unmarshal([]byte(body), &problem); err != nil || r.StatusCode != 400 || problem.Status != 400 || problem.Title != want {
			t.Errorf("%s: %s %s, want %s", query, r.Status, body, want)
		}
	}
	if n := c.Limiter.Count("k", time.Now()); n != 0 {
		t.Errorf("%d were taken", n)
	}
}

// TestCheck_BadForms: a form that cannot be read is refused as a whole: what can be read of
// it is another question. Forms of both sorts are read.
func TestCheck_BadForms(t *testing.T) {
	c := config(t, edgetest.NewHub(edgetest.Faults{}), "a")
	const plain, parts = "application/x-www-form-urlencoded", "multipart/form-data; boundary=b"
	part := func(name, value string) string {
		return "--b\r\nContent-Disposition: form-data; name=\"" + name + "\"\r\n\r\n" + value + "\r\n"
	}
	for _, f := range []struct {
		query, kind, body string
		want              int
		count             int64
	}{
		{"key=a&cost=5%zz", plain, "", 400, 0},
		{"key=b&cost=5;0", plain, "", 400, 0},
		{"key=c", plain, "cost=2&x=%zz", 400, 0},
		{"key=d", plain, "cost=2&x=" + strings.Repeat("x", 70_000), 400, 0},
		{"key=e", parts, part("cost", "2"), 400, 0}, // it has no end
		{"key=f", parts, part("cost", "2") + part("x", strings.Repeat("x", 70_000)) + "--b--\r\n", 400, 0},
		{"key=g", plain, "cost=2", 200, 2},
		{"key=h", parts, part("cost", "2") + "--b--\r\n", 200, 2},
		{"key=i", "text/plain", "cost=2", 200, 1}, // it has no form
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/v1/check?"+f.query, strings.NewReader(f.body))
		r.Header.Set("Content-Type", f.kind)
		edgeserver.Handler(c).ServeHTTP(w, r)
		if got := c.Limiter.Count(f.query[4:5], time.Now()); w.Code != f.want || got != f.count {
			t.Errorf("%s and a body of %d bytes: %d, %d taken", f.query, len(f.body), w.Code, got)
		}
	}
}

// TestGRPC: the same checks by gRPC, on the same port.
func TestGRPC(t *testing.T) {
	c := config(t, edgetest.NewHub(edgetest.Faults{}), "a")
	s := httptest.NewUnstartedServer(edgeserver.Handler(c))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	defer s.Close()
	h2 := &http.Transport{Protocols: new(http.Protocols)}
	h2.Protocols.SetUnencryptedHTTP2(true)
	defer h2.CloseIdleConnections()
	client := edgev1connect.NewEdgeServiceClient(&http.Client{Transport: h2}, s.URL, connect.WithGRPC())
	for i := range int64(4) {
		r, err := client.Check(t.Context(), &edgev1.CheckRequest{Key: "k"})
		if err != nil || r.Allowed != (i < 3) || r.Remaining != max(2-i, 0) || r.Limit != 3 || (r.RetryAfterMs > 0) != (i == 3) {
			t.Fatalf("check %d: %v, %v", i, r, err)
		}
	}
	four, less := int64(4), int64(-1)
	if r, err := client.Check(t.Context(), &edgev1.CheckRequest{Key: "new", Cost: &four}); err != nil || r.RetryAfterMs != -1 {
		t.Errorf("more than ever: %v, %v", r, err)
	}
	for _, bad := range []*edgev1.CheckRequest{{}, {Key: "k", Cost: &less}, {Key: strings.Repeat("k", 600)}} {
		if _, err := client.Check(t.Context(), bad); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%v", err)
		}
	}
}

// TestPictures: metrics, the page and /v1/nodes tell how nodes agree; keys are named only
// on request.
func TestPictures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := edgetest.NewHub(edgetest.Faults{})
		a, b := config(t, hub, "a"), config(t, hub, "b")
		time.Sleep(time.Second)
		hub.Split("a", "b")
		for range 2 {
			ask(t, a, "POST", "/v1/check?key=secret")
		}
		ask(t, a, "POST", "/v1/check?key=other")
		time.Sleep(time.Second)
		_, text := ask(t, a, "GET", "/metrics")
		for _, want := range []string{
			`holdfast_edge_decisions_total{allowed="true"} 3`, `holdfast_edge_divergence 3`, `holdfast_edge_keys 2`, `holdfast_edge_over_admitted_total 0`,
			`holdfast_edge_peer_lag_seconds{peer="b"} `, `holdfast_edge_sync_age_seconds `, `holdfast_edge_messages_total{kind="garbage"} 0`,
		} {
			if !strings.Contains(text, want) {
				t.Errorf("metrics lack %s:\n%s", want, text)
			}
		}
		if strings.Contains(text, "secret") {
			t.Error("metrics name a key unasked")
		}
		a.TopKeys = 1
		if _, text := ask(t, a, "GET", "/metrics"); !strings.Contains(text, `holdfast_edge_top_key_count{key="\"secret\""} 2`) || strings.Contains(text, `key="\"other`) {
			t.Errorf("the key with most: %s", text)
		}
		if _, page := ask(t, a, "GET", "/"); !strings.Contains(page, "differ by up to 3") || !strings.Contains(page, "✗ differs") {
			t.Errorf("the page while apart: %s", page)
		}
		hub.Heal()
		time.Sleep(30 * time.Second)
		for _, c := range []*edgeserver.Config{a, b} {
			_, page := ask(t, c, "GET", "/")
			var p struct {
				Agree bool
				Total uint64
				Peers []struct{ Agree bool }
			}
			_, text := ask(t, c, "GET", "/v1/nodes")
			if err := json.Unmarshal([]byte(text), &p); err != nil || !p.Agree || p.Total != 3 || len(p.Peers) != 1 || !p.Peers[0].Agree || !strings.Contains(page, "All nodes agree") {
				t.Errorf("together: %s %v", text, err)
			}
		}
	})
}

// TestAgreeOverABrokenLink: what cannot be heard is not told as agreement.
func TestAgreeOverABrokenLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := config(t, edgetest.NewHub(edgetest.Faults{}), "a")
		a.LinkErr = func() error { return errors.New("states are not kept") }
		if _, text := ask(t, a, "GET", "/v1/nodes"); !strings.Contains(text, `"agree":false`) || !strings.Contains(text, `"link":"states are not kept"`) {
			t.Error(text)
		}
		if _, text := ask(t, a, "GET", "/"); !strings.Contains(text, "not known whether all nodes agree") || strings.Contains(text, "differ by") {
			t.Error(text)
		}
	})
}

// TestAlerts: an alert is told when it begins and when it ends, once, and again until
// somebody has heard it.
func TestAlerts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := edgetest.NewHub(edgetest.Faults{})
		a := config(t, hub, "a")
		config(t, hub, "b")
		var told []string
		deaf := 5
		post := func(r *http.Request) (*http.Response, error) {
			var body struct {
				Alert  string
				Firing bool
			}
			if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
				t.Error(err)
			}
			if deaf > 0 {
				deaf--
				return &http.Response{StatusCode: 503, Status: "503 deaf", Body: http.NoBody}, nil
			}
			told = append(told, fmt.Sprint(body.Alert, " ", body.Firing))
			return &http.Response{StatusCode: 204, Body: http.NoBody}, nil
		}
		failures := 0
		alerts := &edgeserver.Alerts{Node: a.Node, URL: "http://127.0.0.1:1/", Divergence: 1, SyncAge: 20 * time.Second, Client: &http.Client{Transport: roundTrip(post)}, OnError: func(error) { failures++ }}
		go alerts.Run(t.Context())
		time.Sleep(15 * time.Second)
		synctest.Wait()
		if len(told) > 0 {
			t.Fatalf("without a reason: %v", told)
		}
		hub.Split("a", "b")
		ask(t, a, "POST", "/v1/check?key=k&cost=2")
		time.Sleep(25 * time.Second)
		hub.Heal()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		want := "divergence true,sync_age_seconds true,divergence false,sync_age_seconds false"
		if got := strings.Join(told, ","); len(told) != 4 || !strings.HasPrefix(got, "divergence true,sync_age_seconds true,") || failures != 1 {
			t.Errorf("%s, not %s; %d failures were told of five for one cause", got, want, failures)
		}
	})
}

// TestNoAlertOfUnevenLoad: requests to one node only are no reason for an alert on any; a node that was
// cut off is one on both others.
func TestNoAlertOfUnevenLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := edgetest.NewHub(edgetest.Faults{})
		rate := limit.Rate{Count: 1_000_000, Per: time.Hour, Algorithm: limit.FixedWindow}
		told := make(chan string, 100)
		var busy *edgeserver.Config
		for _, name := range []string{"c", "b", "a"} {
			busy = configOf(t, hub, name, rate)
			post := func(*http.Request) (*http.Response, error) {
				told <- name
				return &http.Response{StatusCode: 204, Body: http.NoBody}, nil
			}
			alerts := &edgeserver.Alerts{Node: busy.Node, URL: "http://127.0.0.1:1/", Divergence: 100, Client: &http.Client{Transport: roundTrip(post)}}
			go alerts.Run(t.Context())
		}
		load := func(d time.Duration) {
			for range d / (25 * time.Millisecond) {
				ask(t, busy, "POST", "/v1/check?key=k")
				time.Sleep(25 * time.Millisecond)
			}
			synctest.Wait()
		}
		if load(time.Minute); len(told) > 0 {
			t.Fatalf("%d alerts while all nodes agree, the first by %s", len(told), <-told)
		}
		hub.Partition("c")
		if load(10 * time.Second); len(told) != 2 {
			t.Fatalf("%d alerts of a node that was cut off, not one by each of the two others", len(told))
		}
		if first, second := <-told, <-told; min(first, second) != "a" || max(first, second) != "b" {
			t.Errorf("alerts by %s and %s", first, second)
		}
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestNamesOfPeers: whatever other nodes are called, metrics can be read.
func TestNamesOfPeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := edgetest.NewHub(edgetest.Faults{})
		c := config(t, hub, "a")
		for _, name := range []string{"b", "\xff", "\xfe", `"\xff"`, "ö"} {
			config(t, hub, name)
		}
		time.Sleep(time.Minute)
		r, body := ask(t, c, "GET", "/metrics")
		if r.StatusCode != 200 {
			t.Fatalf("%s %s", r.Status, body)
		}
		for _, label := range []string{`"b"`, `"\"\\xff\""`, `"\"\\xfe\""`, `"\"\\\"\\\\xff\\\"\""`, `"ö"`} {
			if !strings.Contains(body, label) {
				t.Errorf("there is no %s in\n%s", label, body)
			}
		}
	})
}
