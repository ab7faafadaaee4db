package api_test

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"
)

// A watch over HTTP that fails in the middle does not end as one that is whole.
func TestWatch_FailsInTheMiddle(t *testing.T) {
	for _, way := range []struct{ method, path string }{{"GET", "/v1/watch?prefix=k"}, {"POST", "/holdfast.v1.WatchService/Watch"}} {
		r := serve(t)
		req, err := http.NewRequestWithContext(r.ctx, way.method, "http://"+r.addr+way.path, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		res, err := r.web.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body := bufio.NewReader(res.Body)
		if line, err := body.ReadString('\n'); err != nil {
			t.Fatal(line, err)
		}
		r.node.Close()
		if rest, err := io.ReadAll(body); err == nil {
			t.Errorf("%s: the watch of a node that has ended ends as if it were whole, with %q", way.path, rest)
		}
		res.Body.Close()
	}
}
