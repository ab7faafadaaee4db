package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	bugs, err := parse("x.txt", "a comment\n=== one\nfile: a.go\ntest: ./a -run A\n--- old\nx\ny\n--- new\n--- old\np\n--- new\nq\nfunc: c T.f\n--- old\nr\n--- new\ns\nt\n\n=== two\nfile: b.go\ntest: ./b\nsays: what: broke\n--- old\n1\n--- new\n2\n")
	if err != nil {
		t.Fatal(err)
	}
	want := []bug{
		{"x.txt", "one", "./a -run A", "", []edit{{"a.go", "", "x\ny", ""}, {"a.go", "", "p", "q"}, {"", "c T.f", "r", "s\nt"}}},
		{"x.txt", "two", "./b", "what: broke", []edit{{"b.go", "", "1", "2"}}},
	}
	if !reflect.DeepEqual(bugs, want) {
		t.Errorf("got  %+v\nwant %+v", bugs, want)
	}
	for _, bad := range []string{"=== a\n--- old\nx\n--- new\ny\n", "=== a\nfile: f\ntest: t\n--- old\nx\n--- new\nx\n", "=== a\nfile: f\ntest: t\n", "=== a\nsize: 3\n--- old\nx\n--- new\ny\n"} {
		if _, err := parse("x.txt", bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

// Every planted bug still fits the tree: its old text stands exactly once.
func TestListsFit(t *testing.T) {
	bugs, err := load("../../planted")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range bugs {
		for _, e := range b.edits {
			at, err := e.span("../..")
			if err == nil {
				_, err = at.planted(e)
			}
			if err != nil {
				t.Errorf("%s: %s: %v", b.source, b.name, err)
			}
		}
	}
}

// A bug that no test catches is told, and the file is whole afterwards.
func TestCatch(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	good := "package p\n\nfunc Two() int { return 1 + 1 }\n\nfunc Three() int { return 3 }\n"
	write("go.mod", "module p\n\ngo 1.26\n")
	write("p.go", good)
	write("p_test.go", "package p\n\nimport \"testing\"\n\nfunc TestTwo(t *testing.T) {\n\tif Two() != 2 {\n\t\tt.Error(\"two is\", Two())\n\t}\n}\n")
	with := func(old, new string) bug {
		return bug{source: "x.txt", name: "x", test: ".", says: "two is 3", edits: []edit{{fn: ". Two", old: old, new: new}}}
	}
	hanging := with("return 1 + 1", "for {}")
	hanging.test = "-timeout=1s ."
	tests := []struct {
		b    bug
		want string
	}{
		{hanging, "did not end"},
		{with("1 + 1", "1 + 2"), ""},
		{with("1 + 1", "1 + 3"), "without saying"},
		{with("return 3", "return 4"), "stands 0 times"},
		{bug{source: "x.txt", name: "x", test: ".", edits: []edit{{file: "p.go", old: "return 3", new: "return 4"}}}, "NOT CAUGHT"},
		{bug{source: "x.txt", name: "x", test: ".", edits: []edit{{file: "p.go", old: "return", new: "leave"}}}, "stands 2 times"},
		{bug{source: "x.txt", name: "x", test: ".", edits: []edit{{fn: ". Four", old: "return", new: "leave"}}}, "the function"},
		{with("1 + 1", "1 +"), "does not build"},
	}
	for _, tt := range tests {
		err := tt.b.catch(dir)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: got %v, want %q", tt.b.edits, err, tt.want)
		}
	}
	if text, _ := os.ReadFile(filepath.Join(dir, "p.go")); string(text) != good {
		t.Errorf("the file was left as %q", text)
	}
}
