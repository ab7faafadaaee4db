package gather_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/guard/gather"
)

func TestIssueFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "issues.json")
	write := func(text string) { ok(t, os.WriteFile(path, []byte(text), 0o644)) }
	write(`[{"id":"1","status":"closed","milestone":"v2","labels":["bug","ui"]},{"id":"2","status":"open","milestone":"v3","assignees":["ann"]},{"id":"3","status":"done","milestone":"spring 26"}]`)
	g := gather.New(gather.Config{Issues: &gather.IssueFile{Path: path, Every: 10 * time.Millisecond}})
	outcomes(t, g, map[guard.Outcome][]guard.Condition{
		guard.Passed: {guard.IssuesComplete("milestone:v2"), guard.IssuesComplete("label:bug label:ui"), guard.IssuesComplete(`milestone:"spring 26"`), guard.IssueStatus("1", "closed"), guard.IssueStatus("2", "open")},
		guard.Failed: {guard.IssuesComplete("milestone:v3"), guard.IssuesComplete("assignee:ann"), guard.IssuesComplete("milestone:none"), guard.IssuesComplete("label:Bug"), guard.IssueStatus("1", "open")},
		guard.Error: {guard.IssueStatus("9", "open"), guard.IssuesComplete("mile:v2"), guard.IssuesComplete("v2"), guard.IssuesComplete(`milestone:"v2`), guard.IssuesComplete("milestone:v2 repo:acme/app"),
			guard.IssuesComplete("milestone:v3 milestone:v2"), guard.IssuesComplete("assignee:bob assignee:ann")},
	})
	c := guard.IssuesComplete("milestone:v3")
	_, err := g.Wait(t.Context(), &c, gather.WaitOptions{Recheck: time.Hour, Told: func(guard.Result) { write(`[{"id":"2","status":"Closed","milestone":"v3"}]`) }})
	ok(t, err)
	write(`[{"id":"1","status":"closed","milestone":"v2","title":"A title","url":"https://example.com/1"}]`)
	outcomes(t, g, map[guard.Outcome][]guard.Condition{guard.Passed: {guard.IssuesComplete("milestone:v2")}})
	for bad, want := range map[string]string{
		"": "is no list of issues", "{": "is no list of issues", "null": "is no list of issues: it is null", `{"id":1}`: "is no list of issues", `[] []`: "is no list of issues",
		`[{"id":1}]`: "issue 1: its id is a JSON number; texts",
		`[{"id":"1","status":"open"},{"id":"2","labels":"bug"}]`: "issue 2: its labels is a JSON string; texts",
		`[{"id":"1","labels":["bug",2]}]`:                        "issue 1: its labels is a JSON number; texts",
		`["1"]`:                                                  "issue 1: it is no JSON object",
		`[null]`:                                                 "issue 1: it is no JSON object",
		`[{"id":"1","milestne":"v2"}]`:                           `issue 1: unknown field "milestne"; id, status, milestone`,
		`[{"id":"1","status":"open","Status":"closed","milestone":"v2"}]`:            `issue 1: unknown field "Status"`,
		`[{"id":"1","status":"open","ſtatus":"closed","milestone":"v2"}]`:            `issue 1: unknown field "ſtatus"`,
		`[{"id":"1","status":"open","milestone":"v2","status":"closed"}]`:            `issue 1: the field "status" is there twice`,
		`[{"status":"closed","milestone":"v2"}]`:                                     `issue 1: it has the id ""`,
		`[{"id":"","status":"closed","milestone":"v2"}]`:                             `issue 1: it has the id ""`,
		`[{"id":"1","milestone":"v2"}]`:                                              `issue 1: it has the id "1" and the status ""`,
		`[{"id":"1","status":null,"milestone":"v2"}]`:                                `issue 1: it has the id "1" and the status ""`,
		`[{"id":"1","status":"open"},{"id":"1","status":"closed","milestone":"v2"}]`: `issue 2: its id "1" is that of issue 1`,
		`[{"id":"1","status":"closed","milestone":"v2","labels":[null]}]`:            "issue 1: labels: number 1 is null",
		"[{\"id\":\"1\",\"status\":\"closed\xff\",\"milestone\":\"v2\"}]":            "issue 1: it has text that is not UTF-8",
		`[{"id":"1","status":"\ud800","milestone":"v2"}]`:                            "issue 1: it has half of a surrogate pair",
	} {
		write(bad)
		for _, c := range []guard.Condition{guard.IssuesComplete("milestone:v2"), guard.IssueStatus("1", "open")} {
			if r := g.Evaluate(t.Context(), &c); r.Outcome != guard.Error || !strings.Contains(r.Reasons[0].Got, path) || !strings.Contains(r.Reasons[0].Got, want) {
				t.Errorf("%s: %+v; want an error with %q", bad, r, want)
			}
		}
	}
	ok(t, os.Remove(path))
	outcomes(t, g, map[guard.Outcome][]guard.Condition{guard.Error: {guard.IssuesComplete("milestone:v2")}})
}

// gitHub is a server that speaks like GitHub.
func gitHub(t *testing.T, h http.HandlerFunc) (*gather.Gatherer, *atomic.Int64) {
	t.Helper()
	return gitHubWithin(t, time.Minute, h)
}

// gitHubWithin is gitHub, to be asked for so long: what does answer has answered by then, however busy the machine is.
func gitHubWithin(t *testing.T, timeout time.Duration, h http.HandlerFunc) (*gather.Gatherer, *atomic.Int64) {
	t.Helper()
	n := &atomic.Int64{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { n.Add(1); h(w, r) }))
	t.Cleanup(srv.Close)
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	return gather.New(gather.Config{Issues: &gather.GitHub{URL: srv.URL + "/", Repo: "acme/app", Token: "t0ken", Client: client}, Timeout: timeout}), n
}

func TestGitHub(t *testing.T) {
	g, asked := gitHub(t, func(w http.ResponseWriter, r *http.Request) {
		tag := `"` + r.URL.String() + `"`
		if r.Header.Get("If-None-Match") == tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		w.Header().Set("ETag", tag)
		if r.Header.Get("Authorization") != "Bearer t0ken" {
			w.WriteHeader(http.StatusUnauthorized)
		}
		switch r.URL.Path {
		case "/repos/acme/app/issues/12", "/repos/other/x/issues/3":
			fmt.Fprint(w, `{"number":12,"state":"closed","pull_request":null}`)
		case "/repos/acme/app/issues/14":
			fmt.Fprint(w, `{"number":14,"state":"open","pull_request":{}}`)
		case "/repos/acme/app/issues":
			list := []map[string]any{}
			for i := range 100 {
				if r.URL.Query().Get("page") == "2" && i > 3 {
					break
				}
				list = append(list, map[string]any{"number": i, "state": "closed", "milestone": map[string]any{"title": "v2"}, "labels": []any{map[string]any{"name": "bug"}}})
			}
			if r.URL.Query().Get("labels") == "open" {
				list = []map[string]any{{"number": 1, "state": "open", "labels": []any{map[string]any{"name": "open"}}}}
			}
			if r.URL.Query().Get("labels") == "pulls" {
				list = []map[string]any{{"number": 1, "state": "open", "labels": []any{map[string]any{"name": "pulls"}}, "pull_request": map[string]any{"url": "x"}},
					{"number": 2, "state": "closed", "labels": []any{map[string]any{"name": "pulls"}}}}
			}
			_ = json.NewEncoder(w).Encode(list)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	})
	for range 2 {
		outcomes(t, g, map[guard.Outcome][]guard.Condition{
			guard.Passed: {guard.IssueStatus("12", "closed"), guard.IssueStatus("#12", "closed"), guard.IssueStatus("other/x#3", "closed"), guard.IssuesComplete("milestone:v2 label:bug"), guard.IssuesComplete("label:pulls")},
			guard.Failed: {guard.IssueStatus("12", "open"), guard.IssuesComplete("label:open"), guard.IssuesComplete("milestone:v3")},
			guard.Error: {guard.IssueStatus("13", "open"), guard.IssueStatus("14", "open"), guard.Not(guard.IssueStatus("14", "closed")), guard.IssueStatus("x", "open"), guard.IssueStatus("a/b/c#1", "open"), guard.IssueStatus("../x#1", "open"), guard.IssueStatus("acme12", "open"),
				guard.IssuesComplete("repo:../../user milestone:v2"), guard.IssuesComplete("repo:none/x")},
		})
	}
	c := guard.IssuesComplete("milestone:v2 label:bug")
	if r := g.Evaluate(t.Context(), &c); r.Reasons[0].Got != "0 of 104 open" {
		t.Errorf("got %q", r.Reasons[0].Got)
	}
	if asked.Load() == 0 {
		t.Error("nobody was asked")
	}
}

// What a server can answer besides: each is a reason, within the time.
func TestGitHub_Trouble(t *testing.T) {
	for name, tt := range map[string]struct {
		h    http.HandlerFunc
		want string
	}{
		"403":       {func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Retry-After", "30"); w.WriteHeader(403) }, "asked again in 30s"},
		"429":       {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(429) }, "asked again in 1m0s"},
		"404":       {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) }, "it is not there"},
		"500":       {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, "500"},
		"304":       {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(304) }, "304"},
		"garbage":   {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") }, "not the JSON"},
		"no issue":  {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{}") }, ""},
		"huge":      {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, "[%s", strings.Repeat(" ", 9<<20)) }, "more than 8 MiB"},
		"slow":      {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "deadline"},
		"redirects": {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.String(), http.StatusFound) }, "redirects"},
		"endless": {func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.URL.Path, "issues/") {
				w.WriteHeader(500)
			}
			fmt.Fprintf(w, "[%s{\"state\":\"closed\"}]", strings.Repeat(`{"state":"closed"},`, 99))
		}, "more than 5000 issues"},
		"hidden": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-RateLimit-Remaining", "4990")
			w.WriteHeader(403)
			fmt.Fprint(w, `{"message":"Resource not accessible by integration"}`)
		}, "Resource not accessible by integration"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			timeout := time.Minute
			if name == "slow" { // the only one that takes all of it
				timeout = time.Second
			}
			g, asked := gitHubWithin(t, timeout, tt.h)
			all := guard.IssuesComplete("label:x")
			one := guard.IssueStatus("1", "open")
			r1, n := g.Evaluate(t.Context(), &all), asked.Load()
			r2 := g.Evaluate(t.Context(), &one)
			if r1.Outcome != guard.Error || !strings.Contains(r1.Reasons[0].Got, tt.want) || r2.Outcome != guard.Error {
				t.Errorf("%s, %s", r1, r2)
			}
			if (name == "403" || name == "429") && asked.Load() != n {
				t.Error("a server that refused was asked again")
			}
		})
	}
}

// A repository that the token may not see keeps nobody from asking for another.
func TestGitHub_OneIsHidden(t *testing.T) {
	g, _ := gitHub(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "secret") {
			w.WriteHeader(403)
			return
		}
		fmt.Fprint(w, `{"number":12,"state":"closed"}`)
	})
	secret, open := guard.IssueStatus("acme/secret#1", "closed"), guard.IssueStatus("acme/app#12", "closed")
	if r := g.Evaluate(t.Context(), &secret); r.Outcome != guard.Error {
		t.Error(r)
	}
	if r := g.Evaluate(t.Context(), &open); r.Outcome != guard.Passed {
		t.Error(r)
	}
}

// A token goes along with a redirect within the server, and with none to another port.
func TestGitHub_Redirect(t *testing.T) {
	var tokens []string
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tokens = append(tokens, r.Header.Get("Authorization"))
		fmt.Fprint(w, `{"number":12,"state":"closed"}`)
	}))
	defer other.Close()
	to := "/repositories/7/issues/12"
	g, _ := gitHub(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/repos/") {
			http.Redirect(w, r, to, http.StatusMovedPermanently)
			return
		}
		tokens = append(tokens, r.Header.Get("Authorization"))
		fmt.Fprint(w, `{"number":12,"state":"closed"}`)
	})
	c := guard.IssueStatus("12", "closed")
	if r := g.Evaluate(t.Context(), &c); r.Outcome != guard.Passed || !slices.Equal(tokens, []string{"Bearer t0ken"}) {
		t.Errorf("within the server: %+v with %q", r, tokens)
	}
	to = other.URL
	if r := g.Evaluate(t.Context(), &c); r.Outcome != guard.Error || len(tokens) != 1 || !strings.Contains(fmt.Sprint(r), "is not given the token") {
		t.Errorf("to another port: %+v with %q", r, tokens)
	}
}

// A server with smaller pages than were asked for is read to its last one, also when the
// answers come by their ETags.
func TestGitHub_SmallPages(t *testing.T) {
	g, _ := gitHub(t, func(w http.ResponseWriter, r *http.Request) {
		etag, state := strconv.Quote(r.URL.Query().Get("page")), "closed"
		if w.Header().Set("ETag", etag); r.URL.Query().Get("page") == "1" {
			w.Header().Set("Link", `<http://x/?page=2>; rel="next", <http://x/?page=2>; rel="last"`)
		} else {
			state = "open"
		}
		if r.Header.Get("If-None-Match") == etag {
			w.Header().Del("Link")
			w.WriteHeader(http.StatusNotModified)
			return
		}
		fmt.Fprintf(w, `[{"number":1,"state":%q,"labels":[{"name":"x"}]}]`, state)
	})
	c := guard.IssuesComplete("label:x")
	for range 2 {
		if r := g.Evaluate(t.Context(), &c); r.Outcome != guard.Failed || r.Reasons[0].Got != "1 of 2 open" {
			t.Error(r)
		}
	}
}

// Labels and logins match whatever their case, as those of the server do; what it takes for
// something else is refused, and not asked for.
func TestGitHub_Spelling(t *testing.T) {
	g, asked := gitHub(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("page") != "1" {
			fmt.Fprint(w, "[]")
			return
		}
		fmt.Fprint(w, `[{"number":1,"state":"closed","labels":[{"name":"bug"},{"name":"Größe"}],"assignees":[{"login":"Ann"}]}]`)
	})
	outcomes(t, g, map[guard.Outcome][]guard.Condition{
		guard.Passed: {guard.IssuesComplete("label:Bug"), guard.IssuesComplete("label:bug label:größe"), guard.IssuesComplete("assignee:ann"), guard.IssuesComplete("assignee:Ann label:BUG")},
		guard.Failed: {guard.IssuesComplete("label:bugs"), guard.IssuesComplete("assignee:bob")},
	})
	before := asked.Load()
	outcomes(t, g, map[guard.Outcome][]guard.Condition{
		guard.Error: {guard.IssuesComplete("label:a,b"), guard.IssuesComplete("assignee:none"), guard.IssuesComplete("assignee:*")},
	})
	if n := asked.Load() - before; n > 0 {
		t.Errorf("the server was asked %d times", n)
	}
}

// A server that tells of no next page, and has smaller ones than were asked for, is read until
// nothing comes any more.
func TestGitHub_NoLink(t *testing.T) {
	g, _ := gitHub(t, func(w http.ResponseWriter, r *http.Request) {
		page, _ := strconv.Atoi(r.URL.Query().Get("page"))
		list := []map[string]any{}
		for i := range []int{0, 30, 1, 0}[min(page, 3)] {
			list = append(list, map[string]any{"number": page*100 + i, "state": []string{"", "closed", "open"}[page], "labels": []any{map[string]any{"name": "x"}}})
		}
		_ = json.NewEncoder(w).Encode(list)
	})
	c := guard.IssuesComplete("label:x")
	if r := g.Evaluate(t.Context(), &c); r.Outcome != guard.Failed || r.Reasons[0].Got != "1 of 31 open" {
		t.Error(r)
	}
}

// The issues of a milestone are asked for by its number: a repository of many thousands has a
// milestone of three all the same.
func TestGitHub_Milestone(t *testing.T) {
	g, asked := gitHub(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/repos/acme/app/milestones" {
			fmt.Fprint(w, `[{"number":1,"title":"v1"},{"number":7,"title":"v2"}]`)
			return
		}
		list, n := []map[string]any{}, 100
		if page := r.URL.Query().Get("page"); r.URL.Query().Get("milestone") == "7" {
			if n = 3; page != "1" {
				n = 0
			}
		}
		for i := range n {
			list = append(list, map[string]any{"number": i, "state": []string{"open", "closed"}[min(i, 1)], "milestone": map[string]any{"title": "v2"}})
		}
		_ = json.NewEncoder(w).Encode(list)
	})
	c := guard.IssuesComplete("milestone:v2")
	if r := g.Evaluate(t.Context(), &c); r.Outcome != guard.Failed || r.Reasons[0].Got != "1 of 3 open" || asked.Load() > 3 {
		t.Errorf("after %d requests: %v", asked.Load(), r)
	}
}

// An answer that has not changed is not sent again.
func TestGitHub_ETag(t *testing.T) {
	var fresh, old atomic.Int64
	g, _ := gitHub(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("If-None-Match") == `"1"` {
			old.Add(1)
			w.WriteHeader(http.StatusNotModified)
			return
		}
		fresh.Add(1)
		w.Header().Set("ETag", `"1"`)
		fmt.Fprint(w, `{"number":12,"state":"closed"}`)
	})
	c := guard.IssueStatus("12", "closed")
	for range 3 {
		if r := g.Evaluate(t.Context(), &c); r.Outcome != guard.Passed {
			t.Fatal(r)
		}
	}
	if fresh.Load() != 1 || old.Load() != 2 {
		t.Errorf("%d fresh answers and %d by their ETag", fresh.Load(), old.Load())
	}
}
