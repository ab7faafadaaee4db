package gather

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast/guard"
)

// A wait looks at its file of issues every second: a text that is the same is parsed once, and another of the same length
// and time is not taken for it.
func TestIssueFile_Unchanged(t *testing.T) {
	s, at := &IssueFile{Path: filepath.Join(t.TempDir(), "issues.json")}, time.Unix(1_000_000_000, 0)
	read := func(text string) (*Issue, error) {
		if err := os.WriteFile(s.Path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(s.Path, at, at); err != nil {
			t.Fatal(err)
		}
		list, err := s.read()
		if err != nil {
			return nil, err
		}
		return &list[0], nil
	}
	const one, other, bad = `[{"id":"1","status":"open"}]`, `[{"id":"2","status":"open"}]`, `[{"id":"2","status":"open"},1]`
	first, err1 := read(one)
	same, err2 := read(one)
	next, err3 := read(other)
	if err1 != nil || err2 != nil || err3 != nil || first != same || first == next || next.ID != "2" {
		t.Errorf("%+v, %+v, %+v: %v, %v, %v", first, same, next, err1, err2, err3)
	}
	for range 2 {
		if _, err := read(bad); err == nil || !strings.Contains(err.Error(), "issue 2: it is no JSON object") {
			t.Errorf("of a bad text: %v", err)
		}
	}
}

type answers func() string

func (f answers) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(f())), Request: r}, nil
}

// Many that look at the same issue at the same moment ask the server once; those that come while it is asked, once more: what
// they get was not asked for before they wanted it.
func TestGitHub_Shared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		g := New(Config{Issues: &GitHub{Repo: "acme/app", Client: &http.Client{Transport: answers(func() string {
			state := map[bool]string{true: "open", false: "closed"}[asked.Add(1) == 1]
			time.Sleep(time.Second)
			return `{"number":12,"state":"` + state + `"}`
		})}}})
		c := guard.IssueStatus("12", "closed")
		var all sync.WaitGroup
		look := func(want guard.Outcome) {
			for range 50 {
				all.Go(func() {
					if r := g.Evaluate(t.Context(), &c); r.Outcome != want {
						t.Errorf("%s; want %s", r, want)
					}
				})
			}
		}
		look(guard.Failed)
		time.Sleep(time.Second / 2)
		look(guard.Passed)
		all.Wait()
		if n := asked.Load(); n != 2 {
			t.Errorf("it is asked %d times", n)
		}
		look(guard.Passed)
		all.Wait()
		if n := asked.Load(); n != 3 {
			t.Errorf("then it is asked %d times", n)
		}
	})
}

// What one look gives up is asked again by those that share it.
func TestShared_GivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s shared[string, int]
		asked := 0
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		ask := func(ctx context.Context) (int, error) {
			return s.ask(ctx, "x", func() (int, error) {
				asked++
				select {
				case <-ctx.Done():
					return 0, ctx.Err()
				case <-time.After(time.Minute):
					return 1, nil
				}
			})
		}
		var all sync.WaitGroup
		all.Go(func() {
			if n, err := ask(short); err == nil {
				t.Errorf("the look that gives up has %d", n)
			}
		})
		synctest.Wait()
		for range 3 {
			all.Go(func() {
				if n, err := ask(t.Context()); n != 1 || err != nil {
					t.Errorf("%d, %v", n, err)
				}
			})
		}
		all.Wait()
		if asked != 2 || len(s.flights) != 0 {
			t.Errorf("asked %d times, %d left", asked, len(s.flights))
		}
	})
}
