package toyhold_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/drivertest"
	"github.com/holdfast-io/holdfast/examples/toyhold"
	"github.com/holdfast-io/holdfast/internal/pasted"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestConformance runs the suite that every backend passes.
func TestConformance(t *testing.T) {
	srv, err := toyhold.Serve("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = srv.Close() })
	drivertest.Run(t, drivertest.URL("toy://"+srv.Addr()))
}

func TestBadURLs(t *testing.T) {
	for url, kind := range map[string]error{
		"toy:": fs.ErrInvalid, "toy://h/path": fs.ErrInvalid, "toy://h?x=y": fs.ErrInvalid,
		"toy://127.0.0.1:1": driver.ErrUnavailable,
	} {
		if _, err := driver.Open(t.Context(), url); !errors.Is(err, kind) {
			t.Errorf("%s: %v; want %v", url, err, kind)
		}
	}
}

// The code in the guide is the code of this package.
func TestGuideIsThisCode(t *testing.T) {
	guide, err := os.ReadFile("../../docs/adding-a-backend.md")
	if err != nil {
		t.Fatal(err)
	}
	code := source(t)
	snippets := strings.Split(string(guide), "```go\n")[1:]
	if len(snippets) < 5 {
		t.Errorf("the guide has %d pieces of code", len(snippets))
	}
	for _, s := range snippets {
		text, _, ended := strings.Cut(s, "```")
		if !ended || !strings.Contains(code, text) {
			t.Errorf("this is in the guide and not in the package:\n%s", text)
		}
	}
}

// source is all code of the package, its tests too.
func source(t *testing.T) string {
	var all strings.Builder
	for _, text := range files(t) {
		all.WriteString(text)
	}
	return all.String()
}

func files(t *testing.T) map[string]string {
	names, err := filepath.Glob("*.go")
	if err != nil || len(names) == 0 {
		t.Fatalf("no source: %v", err)
	}
	all := map[string]string{}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = string(text)
	}
	return all
}

// TestOutside: the package builds in a module of its own, as a backend that somebody else adds has to.
func TestOutside(t *testing.T) {
	own := files(t)
	maps.DeleteFunc(own, func(name, _ string) bool { return strings.HasSuffix(name, "_test.go") })
	if got := pasted.Files(t, "../..", own, "build", "."); got != "" {
		t.Errorf("outside this module the toy does not build:\n%s", got)
	}
}

func Example() {
	srv, err := toyhold.Serve("127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer srv.Close()
	ctx := context.Background()
	s, err := holdfast.Open(ctx, "toy://"+srv.Addr())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()
	h, err := s.Mutex("jobs").Acquire(ctx)
	fmt.Println(h.Token(), err)
	fmt.Println(h.Release())
	// Output:
	// 1 <nil>
	// <nil>
}
