package guardfile_test

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/guard/guardfile"
)

var update = flag.Bool("update", false, "write the golden files")

// wrap puts a condition, written on one line, into a file; it then stands at 3:11.
func wrap(condition string) string { return "guards:\n  g:\n    when: " + condition + "\n" }

func TestEachKind(t *testing.T) {
	hours := func(h, m int) time.Duration { return time.Duration(h)*time.Hour + time.Duration(m)*time.Minute }
	for text, want := range map[string]guard.Condition{
		`{"lock_free": "a"}`:                                              guard.LockFree("a"),
		`{"lock_free": {"name": "a"}}`:                                    guard.LockFree("a"),
		`{"lock_held_by": {"name": "a", "holder": "b"}}`:                  guard.LockHeldBy("a", "b"),
		`{"semaphore_available": "a"}`:                                    guard.SemaphoreAvailable("a", 1),
		`{"semaphore_available": {"name": "a", "weight": 3}}`:             guard.SemaphoreAvailable("a", 3),
		`{"semaphore_available": {"name": "a", "weight": 3, "limit": 5}}`: {Kind: guard.KindSemaphoreAvailable, Name: "a", Amount: 3, Limit: 5},
		`{"branch_exists": "a"}`:                                          guard.BranchExists("a"),
		`{"branch_not_exists": {"branch": "a"}}`:                          guard.BranchNotExists("a"),
		`{"branch_merged": {"branch": "a", "into": "b"}}`:                 guard.BranchMerged("a", "b"),
		`{"issues_complete": "milestone:v2"}`:                             guard.IssuesComplete("milestone:v2"),
		`{"issue_status": {"issue": "12", "status": "done"}}`:             guard.IssueStatus("12", "done"),
		`{"file_exists": ".freeze"}`:                                      guard.FileExists(".freeze"),
		`{"file_not_exists": {"path": "a b"}}`:                            guard.FileNotExists("a b"),
		`{"session_alive": "build"}`:                                      guard.SessionAlive("build"),
		`{"custom_check": "make test"}`:                                   guard.CustomCheck("make test", ""),
		`{"custom_check": {"command": "x", "description": "y"}}`:          guard.CustomCheck("x", "y"),
		`{"counter": {"name": "a", "equals": -3}}`:                        guard.Counter("a", guard.Equal, -3),
		`{"counter": {"name": "a", "differs_from": 0}}`:                   guard.Counter("a", guard.NotEqual, 0),
		`{"counter": {"name": "a", "at_least": 9007199254740993}}`:        guard.Counter("a", guard.AtLeast, 9007199254740993),
		`{"counter": {"name": "a", "at_most": 9223372036854775807}}`:      guard.Counter("a", guard.AtMost, 1<<63-1),
		`{"leader": "a"}`:                                                 guard.Leader("a", ""),
		`{"leader": {"election": "a", "owner": "b"}}`:                     guard.Leader("a", "b"),
		`{"limit_available": "a"}`:                                        guard.LimitAvailable("a", "", 1),
		`{"limit_available": {"limiter": "a", "key": "b", "cost": 7}}`:    guard.LimitAvailable("a", "b", 7),
		`{"key": "a"}`:                                      guard.KeyExists("a"),
		`{"key": {"key": "a", "exists": true}}`:             guard.KeyExists("a"),
		`{"key": {"key": "a", "exists": false}}`:            guard.KeyAbsent("a"),
		`{"key": {"key": "a", "equals": ""}}`:               guard.KeyEquals("a", ""),
		`{"time_window": {"from": "22:00", "to": "06:30"}}`: guard.During(guard.Window{From: hours(22, 0), To: hours(6, 30)}),
		`{"time_window": {"from": "08:00", "to": "09:05", "days": ["mon", "sun"], "offset": "-03:30"}}`: guard.During(guard.Window{
			From: hours(8, 0), To: hours(9, 5), Days: []time.Weekday{time.Monday, time.Sunday}, Offset: -hours(3, 30)}),
		`{"all": []}`: guard.All(),
		`{"any": [{"lock_free": "a"}, {"not": {"all": [{"lock_free": "b"}]}}]}`: guard.Any(guard.LockFree("a"), guard.Not(guard.All(guard.LockFree("b")))),
	} {
		same(t, "f.yaml", wrap(text), want)
		same(t, "f.json", `{"$schema": "s", "guards": {"g": {"when": `+text+`}}}`, want)
	}
}

// same reads one guard and compares it.
func same(t *testing.T, file, text string, want guard.Condition) {
	t.Helper()
	guards, err := guardfile.Parse(file, []byte(text))
	if err != nil {
		t.Errorf("%s: %v", text, err)
		return
	}
	if len(guards) != 1 || guards[0].Name != "g" || !equal(guards[0].When, want) {
		t.Errorf("%s is %+v, want %+v", text, guards, want)
	}
}

func equal(a, b guard.Condition) bool {
	if len(a.Of) != len(b.Of) {
		return false
	}
	for i := range a.Of {
		if !equal(a.Of[i], b.Of[i]) {
			return false
		}
	}
	a.Of, b.Of = nil, nil
	return reflect.DeepEqual(a, b)
}

func TestBlockStyle(t *testing.T) {
	guards, err := guardfile.Parse("f.yml", []byte(`# work that waits
guards:
  "über": # a name
    description: |
      two
      lines
    when: &busy
      any:
        - lock_held_by:
            name: main
            holder: 'agent 7'
        - time_window: {from: 08:00, to: 17:30, offset: +02:00}
  idle:
    when:
      not: *busy
`))
	if err != nil {
		t.Fatal(err)
	}
	busy := guard.Any(guard.LockHeldBy("main", "agent 7"),
		guard.During(guard.Window{From: 8 * time.Hour, To: 17*time.Hour + 30*time.Minute, Offset: 2 * time.Hour}))
	want := []guardfile.Guard{
		{Name: "über", Description: "two\nlines\n", When: busy, Line: 3, Column: 3},
		{Name: "idle", When: guard.Not(busy), Line: 13, Column: 3},
	}
	if !reflect.DeepEqual(guards, want) {
		t.Errorf("read %+v, want %+v", guards, want)
	}
}

// A file may say of which version of YAML it is, where YAML lets it; what looks like that
// further down is text.
func TestDirective(t *testing.T) {
	for _, head := range []string{"%YAML 1.2\n---\n", "%YAML 1.1\n---\n", "%YAML\t1.2 # new\n---\n", "\ufeff%YAML 1.2\n---\n", "# a\n\n  # b\n%YAML 1.2\r\n---\n", "%TAG !a! tag:a,2000:\n%YAML 1.2\n---\n", ""} {
		text := head + "guards:\n  g:\n    when:\n      file_exists: >-\n        %YAML 1.2\n"
		same(t, "f.yaml", text, guard.FileExists("%YAML 1.2"))
		data := []byte(text)
		if _, err := guardfile.Parse("f.yaml", data); err != nil || string(data) != text {
			t.Errorf("%q: the caller's bytes are %q", text, data)
		}
	}
}

func TestErrors(t *testing.T) {
	for _, c := range []struct{ file, text, want string }{
		// keys
		{"f.yaml", "guard:\n  a: 1\n", `f.yaml:1:1: the file does not know "guard"; did you mean guards?` + "\n" + `f.yaml:1:1: the file has no guards; a file begins with guards:`},
		{"f.yaml", "guards:\n  g:\n    wen: {lock_free: a}\n    when: {lock_free: a}\n", `f.yaml:3:5: the guard "g" does not know "wen"; did you mean when?`},
		{"f.yaml", "guards:\n  g:\n    description: x\n", `f.yaml:2:3: the guard "g" has no condition; say when: and a condition`},
		{"f.yaml", "guards:\n  g:\n    when: {lock_free: a}\n  g:\n    when: {lock_free: b}\n", `f.yaml:4:3: the key "g" is on line 2 already`},
		{"f.yaml", "guards:\n  &g a:\n    when: {lock_free: a}\n  *g :\n    when: {lock_free: b}\n", `f.yaml:4:3: the key "a" is on line 2 already`},
		{"f.yaml", "guards:\n  a:\n    when:\n      lock_free: \"é\x00\"\n", `f.yaml:4:20: not YAML: control characters are not allowed (value: 0)`},
		{"f.json", "{\"guards\": {\n \"é\": {\"when\": {\"all\": []}, \"when\": {\"all\": []}}}}", `f.json:2:29: the key "when" is on line 2 already`},
		{"f.yaml", wrap("{lock_free: {name: a, name: b}}"), `f.yaml:3:33: the key "name" is on line 3 already`},
		{"f.yaml", wrap("{Lock-Fre: a}"), `f.yaml:3:12: a condition does not know "Lock-Fre"; did you mean lock_free?`},
		{"f.yaml", wrap("{branch_merged: {branch: a, inot: b}}"), `f.yaml:3:39: branch_merged does not know "inot"; did you mean into?` + "\n" + `f.yaml:3:12: branch_merged lacks into`},
		{"f.yaml", wrap("{leader: {zebra: a, election: b}}"), `f.yaml:3:21: leader does not know "zebra"; known: election, owner`},
		{"f.yaml", wrap("{lock_free: a, lock_held_by: b}"), `f.yaml:3:11: a condition has one key, its kind; this has 2; put several under all: or any:`},
		{"f.yaml", wrap("{}"), `f.yaml:3:11: a condition has one key, its kind; this has 0; put several under all: or any:`},
		{"f.yaml", wrap("{key: {key: a, exists: true, equals: b}}"), `f.yaml:3:12: key takes one of exists, equals, not 2 of them`},
		{"f.yaml", wrap("{counter: {name: a}}"), `f.yaml:3:12: counter takes one of equals, differs_from, at_least, at_most, not 0 of them`},
		{"f.yaml", wrap("{lock_held_by: a}"), `f.yaml:3:26: lock_held_by wants a mapping, this is a text`},
		{"f.yaml", wrap("{lock_held_by: {<<: {name: a}, name: a, holder: b}}"), `f.yaml:3:27: merge keys are not supported; write the fields out, or use an alias for the whole value`},
		{"f.yaml", wrap("{1: a}"), `f.yaml:3:12: a key wants a text, this is a whole number; write it in quotes: "1"`},
		{"f.yaml", wrap("{all: [{not: {any: []}}]}"), `f.yaml:3:25: any of nothing can never pass; give it parts; all: [] is always true`},
		// types
		{"f.yaml", wrap("{lock_free: 12}"), `f.yaml:3:23: lock_free.name wants a text, this is a whole number; write it in quotes: "12"`},
		{"f.yaml", wrap("{branch_exists: 1.20}"), `f.yaml:3:27: branch_exists.branch wants a text, this is a number with a point or an exponent; write it in quotes: "1.20"`},
		{"f.yaml", wrap("{branch_exists: 2026-01-02}"), `f.yaml:3:27: branch_exists.branch wants a text, this is a date; write it in quotes: "2026-01-02"`},
		{"f.yaml", wrap("{file_exists: true}"), `f.yaml:3:25: file_exists.path wants a text, this is true or false; write it in quotes: "true"`},
		{"f.yaml", wrap("{file_exists: }"), `f.yaml:3:25: file_exists.path wants a text, this is nothing`},
		{"f.yaml", wrap("{file_exists: !secret a}"), `f.yaml:3:25: file_exists.path wants a text, this is a value with the tag !secret`},
		{"f.json", "{\"guards\": {\"g\":\n\t{\"when\": {\"file_exists\":\tnull}}}}", `f.json:2:27: file_exists.path wants a text, this is nothing`},
		{"f.yaml", wrap("{all: {lock_free: a}}"), `f.yaml:3:17: all wants a list, this is a mapping`},
		{"f.yaml", wrap("{not: [{lock_free: a}]}"), `f.yaml:3:17: a condition wants a mapping, this is a list`},
		{"f.yaml", wrap("lock_free"), `f.yaml:3:11: a condition wants a mapping, this is a text`},
		{"f.yaml", "- a\n", `f.yaml:1:1: the file wants a mapping, this is a list`},
		{"f.yaml", wrap("{semaphore_available: {name: a, weight: two}}"), `f.yaml:3:51: semaphore_available.weight wants a whole number, this is a text`},
		// values
		{"f.yaml", wrap("{semaphore_available: {name: a, weight: 0}}"), `f.yaml:3:51: semaphore_available.weight: 0 is below 1`},
		{"f.yaml", wrap("{semaphore_available: {name: a, weight: 010}}"), `f.yaml:3:51: semaphore_available.weight: 010 is not a plain decimal number of 64 bits`},
		{"f.json", `{"guards":{"g":{"when":{"counter":{"name":"a","equals":9223372036854775808}}}}}`, `f.json:1:56: counter.equals: 9223372036854775808 is not a plain decimal number of 64 bits`},
		{"f.json", `{"guards":{"g":{"when":{"counter":{"name":"a","equals":1e3}}}}}`, `f.json:1:56: counter.equals wants a whole number, this is a number with a point or an exponent`},
		{"f.yaml", wrap("{counter: {name: a, equals: 1e3}}"), `f.yaml:3:39: counter.equals wants a whole number, this is a number with a point or an exponent`},
		{"f.yaml", wrap("{counter: {name: a, equals: 123456789012345678901234567890}}"), `f.yaml:3:39: counter.equals: 123456789012345678901234567890 is not a plain decimal number of 64 bits`},
		{"f.yaml", wrap("{counter: {name: a, equals: -99999999999999999999}}"), `f.yaml:3:39: counter.equals: -99999999999999999999 is not a plain decimal number of 64 bits`},
		{"f.yaml", wrap("{lock_free: 99999999999999999999}"), `f.yaml:3:23: lock_free.name wants a text, this is a whole number; write it in quotes: "99999999999999999999"`},
		{"f.yaml", "%YAML 2.0\n---\nguards: {}\n", `f.yaml:1:1: not YAML: found incompatible YAML document`},
		{"f.yaml", "# a\n%YAML 1.2\n---\nguards: {g: 1}\n", `f.yaml:4:13: the guard "g" wants a mapping, this is a whole number`},
		{"f.yaml", wrap(`{lock_free: ""}`), `f.yaml:3:23: lock_free.name: the text is empty`},
		{"f.yaml", wrap(`{lock_free: "a\nb"}`), `f.yaml:3:12: guard: lock_free: a text has more than 4096 bytes or a control character: invalid argument`},
		{"f.yaml", wrap(`{time_window: {from: "24:00", to: "8:00"}}`), `f.yaml:3:32: time_window.from: "24:00" is not a time of the day such as "08:30"` + "\n" + `f.yaml:3:45: time_window.to: "8:00" is not a time of the day such as "08:30"`},
		{"f.yaml", wrap(`{time_window: {from: "08:00", to: "09:00", days: [mon, mon]}}`), `f.yaml:3:60: time_window.days: "mon" is not one of sun, mon, tue, wed, thu, fri, sat, each once`},
		{"f.yaml", wrap(`{time_window: {from: "08:00", to: "09:00", offset: "+18:00"}}`), `f.yaml:3:62: time_window.offset: "+18:00" is not an offset such as "+02:00", below 18 hours`},
		{"f.yaml", "guards:\n  \"\":\n    when: {lock_free: a}\n", `f.yaml:2:3: the name of a guard has 1 to 255 bytes and no control character`},
		// the text itself
		{"f.yaml", "", `f.yaml:1:1: the file is empty; a file begins with guards:`},
		{"f.yaml", "# only a comment\n", `f.yaml:1:1: the file is empty; a file begins with guards:`},
		{"f.yaml", "guards: {}\n---\nguards: {}\n", `f.yaml:2:1: a second document begins here; put all guards under one guards:`},
		{"f.yaml", "guards:\n  a: b: c\n", `f.yaml:2:7: not YAML: mapping values are not allowed in this context`},
		{"f.yaml", "guards:\n\ta: b\n", `f.yaml:2:1: not YAML: found character that cannot start any token`},
		{"f.yaml", "guards: *nowhere\n", `f.yaml:1:9: not YAML: unknown anchor 'nowhere' referenced`},
		{"f.yaml", "guards:\n  é\xff: a\n", `f.yaml:2:4: the text is not UTF-8; save it as UTF-8`},
		{"f.json", `{"guards": {"g": {"when": {"file_exists": "\\\u00e9\ud83d\ude00\ud800\u0041"}}}}`, `f.json:1:64: half of a surrogate pair, which is no character: escape both halves, or write the character itself`},
		{"f.json", "", `f.json:1:1: not JSON: unexpected end of JSON input`},
		{"f.json", "{\"guards\":\n {},}", `f.json:2:5: not JSON: invalid character '}' looking for beginning of object key string`},
		{"f.json", "[\"त", `f.json:1:3: not JSON: unexpected end of JSON input`},
		{"f.json", "\ufeff{} {}", `f.json:1:4: not JSON: invalid character '{' after top-level value`},
		{"f.json", "guards: {}", `f.json:1:1: not JSON: invalid character 'g' looking for beginning of value`},
	} {
		guards, err := guardfile.Parse(c.file, []byte(c.text))
		if err == nil || err.Error() != c.want {
			t.Errorf("%q\n got: %v\nwant: %s", c.text, err, c.want)
		}
		var e *guardfile.Error
		if !errors.Is(err, fs.ErrInvalid) || !errors.As(err, &e) || guards != nil {
			t.Errorf("%q: the error is no fs.ErrInvalid, or no *Error, or came with guards", c.text)
		}
	}
}

// Files within every bound are read; one step more is refused, and soon.
func TestBounds(t *testing.T) {
	nested := func(n int) string {
		return wrap(strings.Repeat("{not: ", n) + "{lock_free: a}" + strings.Repeat("}", n))
	}
	wide := func(n int) string { return wrap("{all: [" + strings.Repeat("{lock_free: a},", n) + "]}") }
	sized := func(n int) string { return fmt.Sprintf("%-*s\n", n-1, wrap("{lock_free: a}")) }
	many := func(n int) string { // n conditions, by aliases
		text := "guards:\n  first:\n    when: &a {all: [" + strings.Repeat("{lock_free: a},", 1023) + "]}\n"
		for i := range n/1024 - 1 {
			text += fmt.Sprintf("  g%d: {when: *a}\n", i)
		}
		return text + strings.Repeat("  last: {when: {lock_free: a}}\n", n%1024)
	}
	doubling := "guards:\n  g0: {when: &a0 {all: []}}\n"
	for i := 1; i <= 30; i++ {
		doubling += fmt.Sprintf("  g%d: {when: &a%d {all: [*a%d, *a%d]}}\n", i, i, i-1, i-1)
	}
	errs := func(n int) string {
		text := "guards: {}\n"
		for i := range n {
			text += fmt.Sprintf("x%d: 1\n", i)
		}
		return text
	}
	for name, c := range map[string]struct{ good, bad, want string }{
		"levels":     {nested(guard.MaxDepth), nested(guard.MaxDepth + 1), "more than 32 levels"},
		"leaves":     {wide(guard.MaxLeaves), wide(guard.MaxLeaves + 1), "more than 1024 leaves"},
		"bytes":      {sized(guardfile.MaxSize), sized(guardfile.MaxSize + 1), "has more than 262144 bytes"},
		"conditions": {many(guardfile.MaxConditions), many(guardfile.MaxConditions + 1), "more than 65536 conditions"},
		"doubling":   {wrap("{all: []}"), doubling, "more than 65536 conditions"},
		"cycle":      {wrap("&a {not: {all: []}}"), wrap("&a {not: *a}"), "within itself"},
		"long cycle": {wrap("{all: []}"), wrap("{any: &l [{lock_free: a}, {not: {all: *l}}]}"), "within itself"},
		"errors":     {errs(0), errs(1000), `"x19"`},
		"brackets":   {wrap("{all: []}"), strings.Repeat("{a: ", guardfile.MaxSize/4), "max depth"},
		"dashes":     {wrap("{all: []}"), strings.Repeat("- ", guardfile.MaxSize/2), "max depth"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := guardfile.Parse("f.yaml", []byte(c.good)); err != nil {
				t.Errorf("refused: %v", err)
			}
			_, err := guardfile.Parse("f.yaml", []byte(c.bad))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want %q", err, c.want)
			}
			if n := strings.Count(err.Error(), "\n") + 1; n > guardfile.MaxErrors {
				t.Errorf("%d errors, more than %d", n, guardfile.MaxErrors)
			}
		})
	}
}

// Thousands of guards are read in one go, in their order.
func TestManyGuards(t *testing.T) {
	text := "guards:\n"
	for i := range 5000 {
		text += fmt.Sprintf("  g%d: {when: {lock_free: l%d}}\n", i, i)
	}
	guards, err := guardfile.Parse("f.yaml", []byte(text))
	if err != nil || len(guards) != 5000 {
		t.Fatalf("%d guards, %v", len(guards), err)
	}
	for i, g := range guards {
		if g.Name != fmt.Sprint("g", i) || g.When.Name != fmt.Sprint("l", i) || g.Line != i+2 {
			t.Fatalf("guard %d is %+v", i, g)
		}
	}
}

func TestSchemaGolden(t *testing.T) {
	for golden, schema := range map[string][]byte{"testdata/guards.schema.json": guardfile.Schema(), "testdata/pipeline.schema.json": guardfile.PipelineSchema()} {
		if *update {
			if err := os.WriteFile(golden, schema, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if string(want) != string(schema) {
			t.Errorf("the schema is not that of %s: if the format was meant to change, go test ./guard/guardfile -run TestSchemaGolden -update", golden)
		}
	}
}
