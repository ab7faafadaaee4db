package api_test

import (
	"io"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/internal/node/api"
)

// rowsOf are the rows of a document's table, by the first cell.
func rowsOf(t *testing.T, doc, heading string) map[string][]string {
	t.Helper()
	_, table, ok := strings.Cut(doc, "| "+heading+" |")
	if !ok {
		t.Fatalf("there is no table of %s", heading)
	}
	table, _, _ = strings.Cut(table, "\n\n")
	rows := map[string][]string{}
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) < 4 || !strings.Contains(cells[1], "`") {
			continue
		}
		for i := range cells {
			cells[i] = strings.ReplaceAll(strings.TrimSpace(cells[i]), "`", "")
		}
		rows[cells[1]] = cells[2:]
	}
	return rows
}

func monitoringDoc(t *testing.T) string {
	t.Helper()
	doc, err := os.ReadFile("../../../docs/monitoring.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(doc)
}

// get is the code and the body of an answer.
func (r *rig) get(url string) (int, string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.ctx, "GET", url, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	res, err := r.web.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

// Every path is where docs/monitoring.md says, and only there.
func TestMonitoringDocument_Paths(t *testing.T) {
	ln := listen(t, "127.0.0.1:0")
	r := serveWith(t, api.Config{Admin: ln})
	paths := rowsOf(t, monitoringDoc(t), "path")
	if len(paths) < 8 {
		t.Fatalf("only %d paths are found", len(paths))
	}
	for path, row := range paths {
		for flag, addr := range map[string]string{"--listen": r.addr, "--admin": ln.Addr().String()} {
			want := http.StatusNotFound
			if slices.Contains(strings.Split(row[0], ", "), flag) {
				want = http.StatusOK
			}
			if code, body := r.get("http://" + addr + path + "?seconds=1"); code != want {
				t.Errorf("%s at %s: %d, want %d: %s", path, flag, code, want, body)
			}
		}
	}
	_, index := r.get("http://" + ln.Addr().String() + "/debug/pprof/")
	for _, profile := range regexp.MustCompile("[a-z]{4,}").FindAllString(strings.SplitN(paths["/debug/pprof/"][1], ":", 2)[1], -1) {
		if !strings.Contains(index, "'"+profile+"?") {
			t.Errorf("there is no profile %s", profile)
		}
	}
}

// The metrics of docs/monitoring.md are those of a node: names, types and labels.
func TestMonitoringDocument_Metrics(t *testing.T) {
	r := serve(t)
	r.want(200, "POST", "/v1/locks/x:acquire", "")
	r.want(409, "POST", "/v1/locks/x:acquire", `{"timeout_ms":0}`)
	_, text := r.get("http://" + r.addr + "/metrics")
	doc := monitoringDoc(t)
	if code := "Aborted"; !strings.Contains(text, `code="`+code+`"`) || !strings.Contains(doc, "`"+code+"`") {
		t.Errorf("a refusal has another code than the document says:\n%s", text)
	}
	is, said := families(text), map[string]string{}
	for name, row := range rowsOf(t, doc, "metric") {
		said[name] = strings.TrimSpace(row[0] + " " + strings.ReplaceAll(row[1], ", ", " "))
	}
	if !maps.Equal(is, said) {
		t.Errorf("a node has\n%v\nand the document says\n%v", is, said)
	}
}

// A node counts the events of the group, and the ends of holds and sessions without their holder from 0 on.
func TestMetrics_Events(t *testing.T) {
	r := serve(t)
	counts := func(want string) {
		t.Helper()
		if _, text := r.get("http://" + r.addr + "/metrics"); !strings.Contains(text, "\nholdfast_events_total{"+want+"\n") {
			t.Errorf("%s is not among\n%s", want, text)
		}
	}
	counts(`kind="session",verb="expired"} 0`)
	counts(`kind="lock",verb="revoked"} 0`)
	for _, name := range []string{"x", "y"} {
		r.want(200, "POST", "/v1/locks/"+name+":acquire", "")
	}
	r.want(409, "POST", "/v1/locks/x:acquire", `{"timeout_ms":0}`)
	counts(`kind="lock",verb="acquired"} 2`)
	counts(`kind="lock",verb="denied"} 1`)
}

// families are type and labels of what /metrics tells, by name.
func families(text string) map[string]string {
	found := map[string]string{}
	for _, family := range regexp.MustCompile(`(?m)^# TYPE (\w+) (\w+)$`).FindAllStringSubmatch(text, -1) {
		labels := map[string]bool{}
		for _, series := range regexp.MustCompile(`(?m)^`+family[1]+`(?:_bucket|_sum|_count)?\{.*\}`).FindAllString(text, -1) {
			for _, label := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(series, -1) {
				labels[label[1]] = true
			}
		}
		delete(labels, "le") // of every histogram
		found[family[1]] = strings.TrimSpace(family[2] + " " + strings.Join(slices.Sorted(maps.Keys(labels)), " "))
	}
	return found
}
