package toyhold_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/drivertest"
	"github.com/holdfast-io/holdfast/examples/toyhold"
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
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("no source: %v", err)
	}
	var all strings.Builder
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
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
