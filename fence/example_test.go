package fence_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/fence"
)

// A was granted the lock with token 100 and stopped; B was granted it with 101
// and wrote. Now A goes on.
func ExampleGate_Do() {
	var gate fence.Gate
	document := ""
	write := func(token fence.Token, text string) {
		err := gate.Do(context.Background(), "report", token, fence.Exclusive, func(context.Context) error {
			document = text
			return nil
		})
		fmt.Println(token, errors.Is(err, driver.ErrStale))
	}
	write(101, "by B")
	write(100, "by A")
	fmt.Println(document)
	// Output:
	// 101 false
	// 100 true
	// by B
}

// Readers that hold a lock together have different tokens, and both are good.
func ExampleGate_Check() {
	var gate fence.Gate
	fmt.Println(gate.Check("config", 25, fence.Shared))
	fmt.Println(gate.Check("config", 20, fence.Shared))
	// A writer that was granted before one of them must be gone.
	fmt.Println(gate.Check("config", 22, fence.Exclusive))
	// Output:
	// <nil>
	// <nil>
	// holdfast: fence check "config": stale: exclusive token 22 is not newer than shared token 25, which was here before; the hold was lost: stop, and acquire again for a new token
}

// A strict gate takes each token once.
func ExampleGate_strict() {
	gate := fence.Gate{Strict: true}
	for range 2 {
		err := gate.Check("invoice/9", 7, fence.Exclusive)
		if r, ok := errors.AsType[*fence.Refusal](err); ok {
			fmt.Println("refused, repeated:", r.Repeated)
		} else {
			fmt.Println(err)
		}
	}
	// Output:
	// <nil>
	// refused, repeated: true
}

// What a Dir has seen, it still knows after a restart.
func ExampleDir() {
	path, err := os.MkdirTemp("", "fence")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(path)
	ctx := context.Background()
	before, after := &fence.Dir{Path: path}, &fence.Dir{Path: path}
	fmt.Println(before.Check(ctx, "backup", 101, fence.Exclusive))
	fmt.Println(errors.Is(after.Check(ctx, "backup", 100, fence.Exclusive), driver.ErrStale))
	// Output:
	// <nil>
	// true
}

// A storage behind HTTP refuses with 412 Precondition Failed.
func ExampleHandler() {
	var gate fence.Gate
	server := httptest.NewServer(fence.Handler(&gate, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "stored")
	})))
	defer server.Close()
	for _, token := range []string{"101", "100"} {
		r, err := http.NewRequest("PUT", server.URL, strings.NewReader("text"))
		if err != nil {
			fmt.Println(err)
			return
		}
		r.Header.Set(fence.HeaderToken, token)
		r.Header.Set(fence.HeaderResource, "report")
		resp, err := server.Client().Do(r)
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
		fmt.Println(token, resp.Status)
	}
	// Output:
	// 101 200 OK
	// 100 412 Precondition Failed
}

// The resource is what the URL names, whatever the client says; GET is a read.
func ExampleMiddleware() {
	gate := &fence.Gate{}
	fenced := fence.Middleware{Gate: gate, Target: func(r *http.Request) (string, fence.Mode, error) {
		if r.Method == "GET" {
			return r.URL.Path, fence.Shared, nil
		}
		return r.URL.Path, fence.Exclusive, nil
	}}
	handler := fenced.Wrap(http.NotFoundHandler())
	r := httptest.NewRequest("GET", "/report", nil)
	r.Header.Set(fence.HeaderToken, "7")
	handler.ServeHTTP(httptest.NewRecorder(), r)
	fmt.Println(gate.Last("/report"))
	// Output: 0 7
}

// A client shows the token of its hold, and learns that the hold was lost.
func ExampleTransport() {
	gate := &fence.Gate{}
	server := httptest.NewServer(fence.Handler(gate, http.NotFoundHandler()))
	defer server.Close()
	client := &http.Client{Transport: &fence.Transport{Base: server.Client().Transport}}
	gate.Check("report", 101, fence.Exclusive)

	ctx := fence.NewContext(context.Background(), fence.Pass{Resource: "report", Token: 100})
	r, err := http.NewRequestWithContext(ctx, "PUT", server.URL, strings.NewReader("text"))
	if err != nil {
		fmt.Println(err)
		return
	}
	resp, err := client.Do(r)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(errors.Is(fence.ResponseError(resp), driver.ErrStale))
	// Output: true
}
