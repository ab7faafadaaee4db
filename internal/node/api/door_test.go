package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// Every dialect goes through the one door, on the leader and on another node: calls that
// are answered once and those that stay are counted there, and nowhere twice.
func TestOneDoor(t *testing.T) {
	rigs := trio(t)
	at := leader(t, rigs)
	for i, r := range []*rig{rigs[at], rigs[(at+1)%3]} {
		name := fmt.Sprint("n", i)
		must[*pb.CounterAddResponse](t)(pb.NewCounterServiceClient(r.conn).Add(r.ctx, &pb.CounterAddRequest{Name: name}))
		r.want(200, "POST", "/v1/counters/"+name+":add", "{}")
		r.want(200, "POST", "/holdfast.v1.CounterService/Subtract", `{"name":"`+name+`"}`)
		r.want(404, "GET", "/v1/kv/none", "")
		r.want(400, "POST", "/holdfast.v1.CounterService/Subtract", `{}`)
		r.want(400, "POST", "/v1/counters/"+name+":add", `{}`, "Holdfast-Namespace", "holdfast.x")
		r.want(404, "POST", "/v1/nonsense/x:do", "")
		res, err := http.Get("http://" + r.addr + "/v1/watch?from=0x")
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
	}
	http.DefaultClient.CloseIdleConnections()
	counted := func(r *rig) string { return strings.Join(r.typed("curl -s localhost:7420/metrics", 1000), "\n") }
	on, off := counted(rigs[at]), counted(rigs[(at+1)%3])
	for line, want := range map[string][2]string{ // at the leader, which answers HTTP for the other node, and there
		`service="CounterService",method="Add",code="OK"`:                   {"2", "1"},
		`service="REST",method="counters.add POST",code="OK"`:               {"2", ""},
		`service="CounterService",method="Subtract",code="OK"`:              {"2", ""},
		`service="REST",method="kv GET",code="NotFound"`:                    {"2", ""},
		`service="CounterService",method="Subtract",code="InvalidArgument"`: {"2", ""},
		`service="REST",method="counters.add POST",code="InvalidArgument"`:  {"1", "1"},
		`service="REST",method="unknown",code="Unimplemented"`:              {"1", "1"},
		`service="WatchService",method="Watch",code="InvalidArgument"`:      {"1", "1"},
	} {
		if got := countOf(on, line); got != want[0] {
			t.Errorf("the leader has counted %q of %s, want %q", got, line, want[0])
		}
		if got := countOf(off, line); got != want[1] {
			t.Errorf("the other node has counted %q of %s, want %q", got, line, want[1])
		}
	}
}

// countOf is what metrics say of calls with these labels; "": nothing.
func countOf(metrics, labels string) string {
lines:
	for line := range strings.SplitSeq(metrics, "\n") {
		if !strings.HasPrefix(line, "holdfast_calls_total{") {
			continue
		}
		for label := range strings.SplitSeq(labels, ",") {
			if !strings.Contains(line, label) {
				continue lines
			}
		}
		return line[strings.LastIndexByte(line, ' ')+1:]
	}
	return ""
}
