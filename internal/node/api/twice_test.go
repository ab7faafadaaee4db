package api_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// What a call says twice beside its request, and not the same, is refused, in every dialect; the
// same twice is as once.
func TestSaidTwice(t *testing.T) {
	r := serve(t)
	for _, name := range []string{"Idempotency-Key", "Holdfast-Namespace"} {
		for path, body := range map[string]string{"/v1/counters/n:add": `{}`, "/holdfast.v1.CounterService/Add": `{"name":"n"}`} {
			out := r.want(400, "POST", path, body, name, "a", name, "b")
			if text := out["error"]; text == nil {
				out["error"] = out["message"]
			}
			if text, _ := out["error"].(string); !strings.Contains(text, "is given 2 times") {
				t.Errorf("%s: %v", path, out)
			}
		}
		_, err := pb.NewCounterServiceClient(r.conn).Add(r.as(strings.ToLower(name), "a", strings.ToLower(name), "b"), &pb.CounterAddRequest{Name: "n"})
		wantCode(t, err, codes.InvalidArgument)
	}
	r.want(400, "GET", "/v1/watch", "", "Last-Event-ID", "1", "Last-Event-ID", "2")
	r.untouched()
	for range 2 {
		if out := r.want(200, "POST", "/v1/counters/n:add", `{}`, "Idempotency-Key", "a", "Idempotency-Key", "a"); out["value"] != 1.0 {
			t.Errorf("one key given twice: %v", out)
		}
	}
}

// Names and namespaces may have slashes; in the path of a name they stand as they are or escaped.
func TestSlashes(t *testing.T) {
	r := serve(t)
	for path, value := range map[string]float64{"/v1/counters/a/b:add": 1, "/v1/counters/a%2Fb:add": 1, "/v1/counters/%2Fa/b:add": 1, "/v1/counters//a/b:add": 1} {
		ns := "team/" + path
		if out := r.want(200, "POST", path, `{}`, "Holdfast-Namespace", ns); out["value"] != value {
			t.Errorf("%s: %v", path, out)
		}
		name := "a/b"
		if strings.Contains(path, "counters/%2Fa") || strings.Contains(path, "counters//a") {
			name = "/a/b"
		}
		got := must[*pb.CounterGetResponse](t)(pb.NewCounterServiceClient(r.conn).Get(r.as("holdfast-namespace", ns), &pb.CounterGetRequest{Name: name}))
		if got.Value != 1 {
			t.Errorf("%s is not %s: %v", path, name, got)
		}
	}
}
