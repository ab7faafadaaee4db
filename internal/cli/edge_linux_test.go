package cli_test

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/holdfast-io/holdfast/internal/services"
)

// edgeProcess runs an edge node with this environment, and returns where it answers.
func edgeProcess(t *testing.T, env []string, args ...string) string {
	t.Helper()
	cmd, url := startEdge(t, env, args...)
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("an edge node ends with %v", err)
		}
	})
	return url
}

// startEdge starts an edge node that the caller has to end.
func startEdge(t *testing.T, env []string, args ...string) (node *exec.Cmd, url string) {
	t.Helper()
	return startEdgeTelling(t, t.Output(), env, args...)
}

// startEdgeTelling is startEdge with another standard error.
func startEdgeTelling(t *testing.T, errOut io.Writer, env []string, args ...string) (node *exec.Cmd, url string) {
	t.Helper()
	cmd := exec.Command("holdfast", append([]string{"--json", "edge", "--listen", "127.0.0.1:0"}, args...)...)
	cmd.Env = append(append(cmd.Environ(), "XDG_CONFIG_HOME="+t.TempDir()), env...)
	cmd.Stderr = errOut
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() }) // if it has not ended
	line, err := bufio.NewReader(out).ReadString('\n')
	var greeting struct{ Listen, Actor, Limit string }
	if err != nil || json.Unmarshal([]byte(line), &greeting) != nil {
		t.Fatalf("an edge node says %q, %v", line, err)
	}
	return cmd, "http://" + greeting.Listen
}

func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(text)
}

// TestEdge: three processes share a limit over NATS: the tenth request passes, the
// eleventh does not, on any of them; and what is not right is refused at once.
func TestEdge(t *testing.T) {
	nats := services.NATS(t).URL()
	var nodes []string
	for i := range 3 {
		nodes = append(nodes, edgeProcess(t, []string{fmt.Sprint("ACTOR_ID=pod-", i), "NATS_URL=" + nats, "WINDOW_DURATION=86400", "MAX_REQUESTS=10"}))
	}
	for i := range 11 {
		node := nodes[i%3]
		awaitCount(t, node, i)
		status, body := get(t, node+"/v1/check?key=k")
		if (status == 200) != (i < 10) {
			t.Fatalf("request %d: %d %s", i+1, status, body)
		}
	}
	if _, text := get(t, nodes[0]+"/metrics"); !strings.Contains(text, `holdfast_edge_peer_lag_seconds{peer="pod-1"}`) {
		t.Errorf("metrics: %s", text)
	}
	for _, bad := range [][]string{
		{"--max-requests", "0"}, {"--window", "x"}, {"--algorithm", "magic"}, {"--nats-url", "redis://h"}, {"--local-cap", "101"}, {"--listen", "0.0.0.0:0"}, {"--actor-id", strings.Repeat("x", 600)}, {"more"},
	} {
		cmd := exec.CommandContext(t.Context(), "holdfast", append([]string{"edge", "--listen", "127.0.0.1:0"}, bad...)...)
		cmd.Env = append(cmd.Environ(), "XDG_CONFIG_HOME="+t.TempDir())
		if out, err := cmd.CombinedOutput(); err == nil || !strings.HasPrefix(string(out), "error: ") {
			t.Errorf("edge %q: %v, %s", bad, err, out)
		}
	}
}

// TestEdge_TLS: with a certificate the port speaks HTTP/2 over TLS, to clients of the named
// authority and to nobody else; certificates that are not right are refused at once.
func TestEdge_TLS(t *testing.T) {
	dir, ours, theirs := t.TempDir(), services.NewAuthority(t, "ours"), services.NewAuthority(t, "theirs")
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	services.WritePair(t, ours.Issue(t, "edge"), cert, key)
	url := strings.Replace(edgeProcess(t, nil, "--actor-id", "a", "--tls-cert", cert, "--tls-key", key, "--tls-client-ca", ours.WriteRoots(t, dir)), "http:", "https:", 1)
	ask := func(shows ...tls.Certificate) (*http.Response, error) {
		way := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ours.Roots(), Certificates: shows}, ForceAttemptHTTP2: true}
		defer way.CloseIdleConnections()
		r, err := (&http.Client{Transport: way}).Get(url + "/v1/check?key=k")
		if err == nil {
			r.Body.Close()
		}
		return r, err
	}
	if r, err := ask(ours.Issue(t, "client")); err != nil || r.StatusCode != 200 || r.ProtoMajor != 2 {
		t.Errorf("a client of ours: %+v, %v", r, err)
	}
	if r, err := ask(); err == nil {
		t.Errorf("a client without a certificate: %+v", r)
	}
	if r, err := ask(theirs.Issue(t, "client")); err == nil {
		t.Errorf("a client of others: %+v", r)
	}
	for _, bad := range [][]string{{"--tls-cert", cert}, {"--tls-cert", key, "--tls-key", key}, {"--tls-client-ca", cert}, {"--tls-cert", cert, "--tls-key", key, "--tls-client-ca", key}} {
		cmd := exec.CommandContext(t.Context(), "holdfast", append([]string{"edge", "--listen", "127.0.0.1:0"}, bad...)...)
		cmd.Env = append(cmd.Environ(), "XDG_CONFIG_HOME="+t.TempDir())
		if out, err := cmd.CombinedOutput(); err == nil || !strings.HasPrefix(string(out), "error: ") || !strings.Contains(string(out), "--tls-") {
			t.Errorf("edge %q: %v, %s", bad, err, out)
		}
	}
}

// TestEdge_Stopped: a request that is under way when a node is told to stop is answered, and the
// other nodes hear what it took.
func TestEdge_Stopped(t *testing.T) {
	nats := services.NATS(t).URL()
	other := edgeProcess(t, nil, "--actor-id", "other", "--nats-url", nats, "--window", "24h", "--max-requests", "10")
	cmd, url := startEdge(t, nil, "--actor-id", "stopped", "--nats-url", nats, "--window", "24h", "--max-requests", "10")
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const form = "key=k&cost=7"
	fmt.Fprintf(conn, "POST /v1/check HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: %d\r\n\r\n", len(form))
	in := bufio.NewReader(conn)
	if line, err := in.ReadString('\n'); err != nil || !strings.Contains(line, "100 Continue") { // it is being answered
		t.Fatal(line, err)
	}
	if _, err := in.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	cmd.Process.Signal(syscall.SIGTERM)
	awaitRefused(t, conn.RemoteAddr().String())
	if _, err := io.WriteString(conn, form); err != nil {
		t.Fatal(err)
	}
	r, err := http.ReadResponse(in, nil)
	if err != nil || r.StatusCode != 200 {
		t.Fatalf("a request under way gets %v, %v", r, err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ends with %v", err)
	}
	awaitCount(t, other, 7)
}

// awaitRefused waits until nobody listens there.
func awaitRefused(t *testing.T, addr string) {
	t.Helper()
	for end := time.After(time.Minute); ; {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return
		}
		conn.Close()
		select {
		case <-end:
			t.Fatal("it still listens")
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// awaitCount waits until a node counts so many of k.
func awaitCount(t *testing.T, node string, n int) {
	t.Helper()
	want := fmt.Sprintf(`"count":%d,`, n)
	for end := time.After(time.Minute); ; {
		_, body := get(t, node+"/v1/count?key=k")
		if strings.Contains(body, want) {
			return
		}
		select {
		case <-end:
			t.Fatalf("a node says %s, not %d", body, n)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// TestDeploy: the manifest is YAML, its Deployment selects its own pods, every variable
// comes from a key that the ConfigMap has, and the flags are ours.
func TestDeploy(t *testing.T) {
	file, err := os.Open("../../deploy/edge.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	kinds := map[string]map[string]any{}
	for d := yaml.NewDecoder(file); ; {
		var doc map[string]any
		if err := d.Decode(&doc); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		kinds[doc["kind"].(string)] = doc
	}
	at := func(v any, path ...any) any {
		for _, p := range path {
			switch p := p.(type) {
			case string:
				v = v.(map[string]any)[p]
			case int:
				v = v.([]any)[p]
			}
		}
		return v
	}
	deployment := kinds["Deployment"]
	labels := fmt.Sprint(at(deployment, "spec", "template", "metadata", "labels"))
	if got := fmt.Sprint(at(deployment, "spec", "selector", "matchLabels")); got != labels || fmt.Sprint(at(kinds["Service"], "spec", "selector")) != labels {
		t.Errorf("pods are %s, selected are %s", labels, got)
	}
	pod := at(deployment, "spec", "template", "spec", "containers", 0)
	data := at(kinds["ConfigMap"], "data").(map[string]any)
	env := []string{}
	for _, v := range at(pod, "env").([]any) {
		from := at(v, "valueFrom").(map[string]any)
		value := "0d2c6a3e-7f61-4a43-8f0e-000000000001" // of metadata.uid
		if ref, ok := from["configMapKeyRef"]; ok {
			if value, ok = data[at(ref, "key").(string)].(string); !ok || at(ref, "name") != at(kinds["ConfigMap"], "metadata", "name") {
				t.Errorf("%v is not in the ConfigMap", ref)
			}
		}
		env = append(env, at(v, "name").(string)+"="+value)
	}
	args := []string{}
	for _, a := range at(pod, "args").([]any)[1:] {
		args = append(args, strings.ReplaceAll(a.(string), ":7430", "127.0.0.1:0"))
	}
	if status, body := get(t, edgeProcess(t, append(env, "NATS_URL=nats://127.0.0.1:1"), args...)+"/healthz"); status != 200 || !strings.Contains(body, "not connected") {
		t.Errorf("without NATS: %d %s", status, body)
	}
}

// fullPipe is the writing end of a pipe that has no room, and that nobody reads.
func fullPipe(t *testing.T) *os.File {
	t.Helper()
	from, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { from.Close(); to.Close() })
	fd := int(to.Fd())
	if err := syscall.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = syscall.Write(fd, make([]byte, 1))
	}
	if err := syscall.SetNonblock(fd, false); err != nil {
		t.Fatal(err)
	}
	return to
}

// TestEdge_StalledErrors: callers that speak no TLS, or another, leave nothing in a node, also if
// nobody reads its standard error.
func TestEdge_StalledErrors(t *testing.T) {
	dir, ours := t.TempDir(), services.NewAuthority(t, "ours")
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	services.WritePair(t, ours.Issue(t, "edge"), cert, key)
	cmd, url := startEdgeTelling(t, fullPipe(t), nil, "--actor-id", "a", "--tls-cert", cert, "--tls-key", key)
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if err := tls.Client(conn, &tls.Config{ServerName: "edge", MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10}).Handshake(); err == nil {
		t.Fatal("an old TLS was taken")
	}
	if _, err := io.ReadAll(conn); err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the connection stays: %v", err)
	}
	cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil {
		t.Errorf("the node ends with %v", err)
	}
}

// TestEdge_AlertURL: a URL that no alert can go to is refused at the start, and not found out
// when there is something to tell. The address is wrong, too, so that no node stays.
func TestEdge_AlertURL(t *testing.T) {
	for _, url := range []string{"alerts.example.org/x", "foo:bar", "http://", "ftp://h/", "http://h:x/"} {
		code, _, said := here(t, "edge", "--listen", "0.0.0.0:0", "--alert-url", url)
		if code != 64 || !strings.Contains(said, "--alert-url") {
			t.Errorf("--alert-url %s: %d, %s", url, code, said)
		}
	}
	for _, url := range []string{"", "https://h:8/x"} {
		if _, _, said := here(t, "edge", "--listen", "0.0.0.0:0", "--alert-url", url); !strings.Contains(said, "loopback") {
			t.Errorf("--alert-url %s: %s", url, said)
		}
	}
}

// TestEdge_AlertAge: nodes that have nothing to tell send a message every 10 s, or every --flush if that is more. An
// age that such a message can go beyond would be an alert again and again.
func TestEdge_AlertAge(t *testing.T) {
	said := func(args ...string) string {
		_, _, text := here(t, append([]string{"edge", "--listen", "0.0.0.0:0", "--alert-url", "https://h:8/x"}, args...)...)
		return text
	}
	for _, c := range [][]string{{"--alert-age", "3s"}, {"--alert-age", "19999ms"}, {"--alert-age", "-1s"}, {"--alert-age", "20s", "--flush", "11s"}} {
		if text := said(c...); !strings.Contains(text, "--alert-age") {
			t.Errorf("%q: %s", c, text)
		}
	}
	for _, c := range [][]string{{}, {"--alert-age", "20s"}, {"--alert-age", "0"}, {"--alert-age", "22s", "--flush", "11s"}} {
		if text := said(c...); !strings.Contains(text, "loopback") {
			t.Errorf("%q: %s", c, text)
		}
	}
}

// TestEdge_Rate: an algorithm that an edge node does not have is refused with those that it has; a window is in seconds
// or has a unit, as a flag and in the environment.
func TestEdge_Rate(t *testing.T) {
	for _, name := range []string{"bogus", "calendar-window", "sliding-log", ""} {
		code, _, said := here(t, "edge", "--listen", "0.0.0.0:0", "--algorithm", name)
		if code != 64 || !strings.Contains(said, "fixed-window, sliding-window, gcra or token-bucket") || strings.Contains(said, `"calendar-window" "`) {
			t.Errorf("--algorithm %q: %d, %s", name, code, said)
		}
	}
	for _, window := range []string{"60", "60s", "1m"} {
		if _, _, said := here(t, "edge", "--listen", "0.0.0.0:0", "--window", window); !strings.Contains(said, "loopback") {
			t.Errorf("--window %s: %s", window, said)
		}
		t.Setenv("WINDOW_DURATION", window)
		if _, _, said := here(t, "edge", "--listen", "0.0.0.0:0"); !strings.Contains(said, "loopback") {
			t.Errorf("WINDOW_DURATION=%s: %s", window, said)
		}
	}
	t.Setenv("WINDOW_DURATION", "soon")
	if code, _, said := here(t, "edge", "--listen", "0.0.0.0:0"); code != 64 || !strings.Contains(said, "WINDOW_DURATION") || !strings.Contains(said, "such as 60 or 1m") {
		t.Errorf("WINDOW_DURATION=soon: %d, %s", code, said)
	}
	if code, _, said := here(t, "edge", "--listen", "0.0.0.0:0", "--window", "-x"); code != 64 || !strings.Contains(said, "such as 60 or 1m") {
		t.Errorf("--window -x: %d, %s", code, said)
	}
}
