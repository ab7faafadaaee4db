package api_test

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

var (
	shellWord = regexp.MustCompile(`'([^']*)'|(\S+)`)
	digits    = regexp.MustCompile(`[0-9a-f]{10,}|\d+`)
)

// Every command in docs/wire.md answers what stands below it, but for numbers
// that cannot be known.
func TestWireDocument(t *testing.T) {
	b, err := os.ReadFile("../../docs/wire.md")
	if err != nil {
		t.Fatal(err)
	}
	r := serve(t)
	lines := strings.Split(string(b), "\n")
	token, ran := "", 0
	for i, line := range lines {
		command, ok := strings.CutPrefix(line, "$ curl -s ")
		if !ok {
			continue
		}
		ran++
		got := r.curl(strings.ReplaceAll(command, "TOKEN", token))
		if !alike(got, lines[i+1]) {
			t.Errorf("%s\n answered %s\ninstead of %s", command, got, lines[i+1])
		}
		var answer struct{ Token json.Number }
		if json.Unmarshal([]byte(got), &answer) == nil && answer.Token != "" && strings.Contains(command, "nightly:acquire") {
			token = answer.Token.String()
		}
	}
	if ran < 15 {
		t.Errorf("only %d commands were run", ran)
	}
}

// curl does what curl does with the options that the document uses.
func (r *rig) curl(command string) string {
	r.t.Helper()
	method, url, body, header := "GET", "", "", http.Header{}
	words := shellWord.FindAllStringSubmatch(command, -1)
	for i := 0; i < len(words); i++ {
		switch word := words[i][1] + words[i][2]; word {
		case "-X", "-d", "-H":
			i++
			value := words[i][1] + words[i][2]
			switch {
			case word == "-X":
				method = value
			case word == "-H":
				k, v, _ := strings.Cut(value, ": ")
				header.Set(k, v)
			default:
				body = value
				if method == "GET" {
					method = "POST"
				}
			}
		default:
			url = strings.Replace(word, "localhost:7420", "http://"+r.addr, 1)
		}
	}
	req, err := http.NewRequestWithContext(r.ctx, method, url, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header = header
	res, err := r.web.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer res.Body.Close()
	out, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(out)
}

// alike compares two answers, with every number from the machine's clocks taken as
// the same.
func alike(a, b string) bool {
	var x, y any
	if json.Unmarshal([]byte(a), &x) != nil || json.Unmarshal([]byte(b), &y) != nil {
		return false
	}
	return reflect.DeepEqual(vague("", x), vague("", y))
}

// known are the numbers that a document can tell.
var known = map[string]bool{"value": true, "first": true, "count": true, "version": true, "limit": true, "used": true, "weight": true}

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
		if name == "key" || name == "error" || strings.HasSuffix(name, "Id") || strings.HasSuffix(name, "Token") || strings.HasSuffix(name, "Ms") || counted[name] {
			return digits.ReplaceAllString(v, "n")
		}
	}
	return v
}
