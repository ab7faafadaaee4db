package api_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// waiting waits until so many wait for a lock.
func (r *rig) waiting(name string, n float64) {
	r.t.Helper()
	for {
		got := r.want(200, "GET", "/v1/locks/"+name, "")["waiting"]
		if got == n {
			return
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-r.ctx.Done():
			r.t.Fatalf("%v wait, want %v", got, n)
		}
	}
}

const (
	waits = "POST /v1/locks/x:acquire HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}"
	asks  = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
)

// A client that goes away while its call waits is noticed, whatever it has sent behind the call.
func TestGoneBehindACall(t *testing.T) {
	r := serve(t)
	r.want(200, "POST", "/v1/locks/x:acquire", `{"ttl_ms":600000}`)
	for _, behind := range []string{"", "G", asks, asks[:20], strings.Repeat(asks, 100)} {
		c := r.dial(waits)
		r.waiting("x", 1)
		if _, err := io.WriteString(c, behind); err != nil {
			t.Fatal(err)
		}
		c.Close()
		r.waiting("x", 0)
	}
	for _, behind := range []string{"G", asks} { // in one piece
		r.dial(waits + behind).Close()
		r.waiting("x", 0)
	}
}

// What is sent behind a call that waits is answered after it, in order.
func TestAnsweredBehindACall(t *testing.T) {
	r := serve(t)
	held := r.want(200, "POST", "/v1/locks/x:acquire", `{"ttl_ms":600000}`)
	c := r.dial(waits + asks + strings.Replace(waits, "x:", "y:", 1))
	r.waiting("x", 1)
	const more = 1000 // too many to be read ahead
	if _, err := io.WriteString(c, strings.Repeat(asks, more)); err != nil {
		t.Fatal(err)
	}
	r.waiting("x", 1)
	r.want(200, "POST", "/v1/locks/x:release", fmt.Sprintf(`{"token":%.0f}`, held["token"]))
	_ = c.SetReadDeadline(time.Now().Add(30 * time.Second)) // only if it fails
	from := bufio.NewReader(c)
	for _, want := range append([]string{`"name":"x"`, "ok", `"name":"y"`}, slices.Repeat([]string{"ok"}, more)...) {
		res, err := http.ReadResponse(from, nil)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode != 200 || !strings.Contains(string(text), want) {
			t.Fatalf("%d %s, want %s: %v", res.StatusCode, text, want, err)
		}
	}
}
