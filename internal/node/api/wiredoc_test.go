package api_test

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/internal/node/api"
	"github.com/holdfast-io/holdfast/internal/services/programs"
	"github.com/holdfast-io/holdfast/server"
)

var digits = regexp.MustCompile(`[0-9a-f]{10,}|\d+`)

// Every command in docs/wire.md says what stands below it, but for numbers that
// cannot be known. The node says of itself what holdfast serve does.
func TestWireDocument(t *testing.T) {
	if _, err := programs.Curl.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	r, token, reservation, examples := documented(t), "", "", wireExamples(t)
	for _, e := range examples {
		got := r.typed(strings.NewReplacer("TOKEN", token, "RESERVATION", reservation).Replace(e.command), len(e.want))
		if !slices.EqualFunc(got, e.want, alike) {
			t.Errorf("%s\n said %s\ninstead of %s", e.command, strings.Join(got, "\n"), strings.Join(e.want, "\n"))
			continue
		}
		var answer struct {
			Token       json.Number
			Reservation string
		}
		if json.Unmarshal([]byte(got[0]), &answer) == nil && answer.Token != "" && strings.Contains(e.command, "nightly:acquire") {
			token = answer.Token.String()
		}
		if answer.Reservation != "" {
			reservation = answer.Reservation
		}
	}
	if len(examples) < 30 {
		t.Errorf("only %d commands were run", len(examples))
	}
}

// documented is the node of docs/wire.md, which knows where clients find it.
func documented(t *testing.T) *rig {
	t.Helper()
	node, err := server.New(server.Config{Dir: t.TempDir(), Tick: 20 * time.Millisecond, Client: "127.0.0.1:7420"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { node.Close() })
	return serveNode(t, node, api.Config{}).begun()
}

// wireExample is a command with what it says.
type wireExample struct {
	command string
	want    []string
}

func wireExamples(t *testing.T) (list []wireExample) {
	t.Helper()
	b, err := os.ReadFile("../../../docs/wire.md")
	if err != nil {
		t.Fatal(err)
	}
	inside := false
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSuffix(line, "\n")
		command, ok := strings.CutPrefix(line, "$ ")
		switch {
		case ok:
			list, inside = append(list, wireExample{command: command}), true
		case line == "```":
			inside = false
		case inside:
			last := &list[len(list)-1]
			last.want = append(last.want, line)
		}
	}
	return list
}

// typed types a command into a shell and reads so many lines; one that goes on after
// them is ended.
func (r *rig) typed(command string, lines int) (said []string) {
	r.t.Helper()
	cmd := exec.CommandContext(r.ctx, "sh", "-c", "exec "+strings.ReplaceAll(command, "localhost:7420", r.addr))
	cmd.Stderr = r.t.Output()
	out, err := cmd.StdoutPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	for from := bufio.NewScanner(out); len(said) < lines && from.Scan(); {
		said = append(said, from.Text())
	}
	goesOn := strings.HasPrefix(command, "curl -sN ")
	if goesOn {
		_ = cmd.Process.Kill()
	}
	rest, _ := io.ReadAll(out)
	if err := cmd.Wait(); !goesOn && (err != nil || len(rest) > 0) {
		r.t.Errorf("%s\n ends with %v, after %q more", command, err, rest)
	}
	return said
}

// alike compares two lines, with every number from the machine's clocks taken as
// the same.
func alike(a, b string) bool {
	a, event := strings.CutPrefix(a, "data: ")
	if b, also := strings.CutPrefix(b, "data: "); event || also {
		return event && also && alike(a, b)
	}
	if !strings.HasPrefix(a, "{") {
		return digits.ReplaceAllString(a, "n") == digits.ReplaceAllString(b, "n")
	}
	var x, y any
	if json.Unmarshal([]byte(a), &x) != nil || json.Unmarshal([]byte(b), &y) != nil {
		return false
	}
	return reflect.DeepEqual(vague("", x), vague("", y))
}

// known are the numbers that a document can tell.
var known = map[string]bool{"value": true, "first": true, "count": true, "version": true, "limit": true, "used": true, "weight": true, "remaining": true}

// counted are the numbers, as strings, that cannot be known.
var counted = map[string]bool{"revision": true, "raftTerm": true, "token": true, "applied": true, "snapshot": true}

func vague(name string, v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, x := range v {
			out[k] = vague(k, x)
		}
		return out
	case []any:
		out := []any{}
		for _, x := range v {
			out = append(out, vague(name, x))
		}
		return out
	case float64:
		if known[name] {
			return v
		}
		return "a number"
	case string:
		if name == "reservation" {
			return "text"
		}
		if name == "key" || name == "error" || strings.HasSuffix(name, "Id") || strings.HasSuffix(name, "Token") || strings.HasSuffix(name, "Ms") || strings.HasSuffix(name, "Revision") || counted[name] {
			return digits.ReplaceAllString(v, "n")
		}
	}
	return v
}
