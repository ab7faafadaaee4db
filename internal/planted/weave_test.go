package main

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

const woven = `package p

// Two is two.
func Two() int { return 1 + 1 }

type list[T any] struct{ items []T }

func (l *list[T]) add(_ int, items ...T) (n int, err error) {
	l.items = append(l.items, items...)
	return len(l.items), nil
}

func (list[T]) nothing(int, string) {}

func mapped[K comparable, V any](k K, v, w V) map[K]V { return map[K]V{k: v} }

func saved() (ok bool) {
	defer func() { ok = recover() == nil }()
	return false
}
`

const wovenTest = `package p

import (
	"os"
	"testing"
)

func TestAll(t *testing.T) {
	if Two() != 2 {
		t.Error("two is", Two())
	}
	var l list[string]
	if n, err := l.add(1, "a", "b"); n != 2 || err != nil {
		t.Error("items are", n)
	}
	l.nothing(1, "")
	if mapped(1, "v", "w")[1] != "v" {
		t.Error("mapped")
	}
	if !saved() {
		t.Error("not saved")
	}
}

func TestAlone(t *testing.T) {
	files, _ := os.ReadDir(".")
	if len(files) != 3 || Two() != 2 {
		t.Error("more files, or two is not two")
	}
}
`

// Bugs of one package are judged in one program: each is active by itself, with the function's form and
// type parameters whatever they are; what cannot stand beside others is planted alone, and so is what
// is not caught there.
func TestTogether(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module p\n\ngo 1.26\n")
	write("p.go", woven)
	write("p_test.go", wovenTest)
	change := func(fn, old, new string) bug {
		return bug{source: "x.txt", name: old + " to " + new, test: ". -run TestAll", edits: []edit{{fn: ". " + fn, old: old, new: new}}}
	}
	alone := change("Two", "1 + 1", "1 + 4")
	alone.test = ". -run=TestAlone"
	twice := change("Two", "1 + 1", "2 + 2")
	twice.edits = append(twice.edits, edit{fn: ". Two", old: "2 + 2", new: "3 + 3"}, edit{fn: ". list.nothing", old: "{}", new: "{ return }"})
	bugs := []bug{
		change("Two", "1 + 1", "1 + 2"), change("Two", "1 + 1", "1"), twice,
		change("list.add", "items...)\n", "items[1:]...)\n"), change("list.nothing", "{}", "{ panic(1) }"), change("mapped", "k: v", "k: w"),
		alone, // does not pass beside the switch's file
		change("saved", "recover() == nil", "recover() != nil"),
		change("list.add", "(n int,", "(_ int,"),            // no bug, and another head
		change("list.add", "return len(", "return len[T]("), // does not compile
		change("Two", "1 + 1", "2 * 1"),                     // no bug
	}
	got := map[string]string{}
	w := worker{tree: dir, told: func(b bug, err error, _ time.Duration) {
		got[b.name] = "caught"
		if err != nil {
			got[b.name], _, _ = strings.Cut(err.Error(), "\n")
		}
	}}
	groups := grouped(bugs)
	if len(groups) != 1 {
		t.Fatalf("%d groups", len(groups))
	}
	rest := w.together(groups[0])
	apart := func(b bug) bool { return slices.ContainsFunc(rest, func(r bug) bool { return r.name == b.name }) }
	for i, b := range bugs {
		if want := i >= 6; apart(b) != want {
			t.Errorf("%q is to be planted alone: %v", b.name, !want)
		}
	}
	w.judge(group{bugs: rest, pkg: "."})
	want := map[string]string{}
	for i, b := range bugs {
		switch {
		case i < 8:
			want[b.name] = "caught"
		case i == 9:
			want[b.name] = "does not build:"
		default:
			want[b.name] = "NOT CAUGHT: the test passed"
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if text, _ := os.ReadFile(filepath.Join(dir, "p.go")); string(text) != woven {
		t.Errorf("the file was left as %q", text)
	}
	if files, _ := os.ReadDir(dir); len(files) != 3 {
		t.Errorf("left behind: %v", files)
	}
}

// The tests of a group are of one program, and have the arguments that the program takes.
func TestGrouped(t *testing.T) {
	var bugs []bug
	for _, test := range []string{"./a -run A", "-race ./a -run A", "./a -run=B -a.size=3 -v", "./b", "./a -args x", "-timeout=1s ./a"} {
		bugs = append(bugs, bug{test: test})
	}
	var got []string
	for _, g := range grouped(bugs) {
		var args []string
		for _, b := range g.bugs {
			c, _ := parseTest(b.test)
			args = append(args, strings.Join(c.args, " "))
		}
		got = append(got, g.pkg+": "+strings.Join(args, "; "))
	}
	if want := []string{"./a: -test.run A; -test.run=B -a.size=3 -test.v; -test.timeout=1s", "./a: -test.run A", "./b: ", ": "}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q", got)
	}
}
