package cli_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/internal/services"
)

// shown is the name in the certificate that a node shows.
func shown(addr string, cfg *tls.Config) (string, error) {
	c, err := tls.Dial("tcp", addr, cfg)
	if err != nil {
		return "", err
	}
	defer c.Close()
	return c.ConnectionState().PeerCertificates[0].Subject.CommonName, nil
}

// A node with a certificate is believed by clients that trust its authority, and by
// no others. It shows a renewed certificate without a restart, and the one it has as
// long as the new one is no good.
func TestServe_TLS(t *testing.T) {
	addr, dir, ours := services.Addr(t), t.TempDir(), services.NewAuthority(t, "ours")
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	services.WritePair(t, ours.Issue(t, "first"), cert, key)
	n := &node{t: t, args: []string{"serve", "--data", filepath.Join(dir, "d"), "--listen", addr, "--tls-cert", cert, "--tls-key", key}}
	if greeting := n.start(); !strings.Contains(greeting, "holdfasts://"+addr) || !strings.Contains(greeting, "https://"+addr) {
		t.Errorf("the node greets with %s", greeting)
	}
	defer n.signal(syscall.SIGTERM)

	count := program(t, dir, "--url", "holdfasts://"+addr, "--timeout", "1s", "counter", "add", "n")
	if out, err := count.CombinedOutput(); err == nil {
		t.Errorf("an unknown authority is believed: %s", out)
	}
	count = program(t, dir, "--url", "holdfasts://"+addr, "counter", "add", "n")
	count.Env = append(count.Env, "SSL_CERT_FILE="+ours.WriteRoots(t, dir))
	if out, err := count.CombinedOutput(); err != nil || string(out) != "1\n" {
		t.Errorf("counted over TLS: %s %v", out, err)
	}

	trusts := &tls.Config{RootCAs: ours.Roots()}
	for _, step := range []struct {
		do   func()
		want string
	}{
		{func() {}, "first"},
		{func() { services.WritePair(t, ours.Issue(t, "second"), cert, key) }, "second"},
		{func() { write(t, key, "half of a k") }, "second"},
		{func() { services.WritePair(t, ours.Issue(t, "third"), cert, key) }, "third"},
	} {
		step.do()
		if got, err := shown(addr, trusts); err != nil || got != step.want {
			t.Errorf("the node shows the certificate %q, %v; want %q", got, err, step.want)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Three nodes that demand certificates pass calls on to each other; the authorities
// that they trust, for themselves and for clients, are read again when they change.
func TestGroup_TLS(t *testing.T) {
	dir, ours, others := t.TempDir(), services.NewAuthority(t, "ours"), services.NewAuthority(t, "others")
	cert, key, clients := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), filepath.Join(dir, "clients.pem")
	relays, peers := filepath.Join(dir, "relays.pem"), filepath.Join(dir, "peers.pem")
	services.WritePair(t, ours.Issue(t, "node"), cert, key)
	roots := ours.WriteRoots(t, dir)
	strangers := others.WriteRoots(t, dir)
	write(t, clients, read(t, roots))
	write(t, relays, read(t, strangers))
	write(t, peers, read(t, strangers))
	nodes, _, hosts := group(t, dir, 3)
	for _, n := range nodes {
		n.args = append(n.args, "--tls-cert", cert, "--tls-key", key, "--tls-ca", relays, "--tls-client-ca", clients,
			"--peer-cert", cert, "--peer-key", key, "--peer-ca", peers)
		n.start()
		t.Cleanup(func() { _ = n.cmd.Process.Kill(); _ = n.cmd.Wait() })
	}
	client := &tls.Config{RootCAs: ours.Roots(), Certificates: []tls.Certificate{ours.Issue(t, "client")}}
	if n := answering(hosts, client, "strangers"); n != 0 {
		t.Errorf("%d nodes of a group answer whose nodes do not trust each other", n)
	}
	write(t, peers, read(t, roots))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	n := 0
	for i := 0; n != 1 && ctx.Err() == nil; i++ { // until there is a leader, which may be another while all are asked
		n = answering(hosts, client, fmt.Sprint("try", i))
	}
	if n != 1 {
		t.Errorf("%d nodes answer, and none but the leader should: the others do not trust it", n)
	}
	write(t, relays, read(t, roots))
	for i, host := range hosts {
		if !answersSoon(ctx, host, client, fmt.Sprint("n", i+1)) {
			t.Errorf("node %d does not answer a client with a certificate", i+1)
		}
	}
	mine, secret := filepath.Join(dir, "client.pem"), filepath.Join(dir, "client-key.pem")
	services.WritePair(t, ours.Issue(t, "client"), mine, secret)
	where := "holdfasts://" + strings.Join(hosts, ",") + "?holdfast_tls_ca=" + roots
	shows := where + "&holdfast_tls_cert=" + mine + "&holdfast_tls_key=" + secret
	for _, args := range [][]string{{"counter", "add", "by-url"}, {"status"}} {
		if out, err := program(t, dir, append([]string{"--url", shows}, args...)...).CombinedOutput(); err != nil {
			t.Errorf("%s with a certificate: %v\n%s", args, err, out)
		}
		if out, err := program(t, dir, append([]string{"--timeout", "2s", "--url", where}, args...)...).CombinedOutput(); err == nil {
			t.Errorf("%s without a certificate:\n%s", args, out)
		}
	}
	stranger := &tls.Config{RootCAs: ours.Roots(), Certificates: []tls.Certificate{others.Issue(t, "client")}}
	if answers(hosts[0], stranger, "stranger") {
		t.Error("a client of another authority is let in")
	}
	write(t, clients, read(t, roots)+read(t, strangers))
	if !answersSoon(ctx, hosts[0], stranger, "friend") {
		t.Error("a client of an authority that was added is not let in")
	}
	orders := operatorsOrder(t, hosts, roots, cert, key)
	until(t, shows, "counter", "add", "before") // there is a leader
	write(t, clients, read(t, strangers))
	if answers(hosts[0], client, "former") {
		t.Error("a client of an authority that was taken away is let in")
	}
	if out, err := program(t, dir, append([]string{"--timeout", "2s"}, orders...)...).CombinedOutput(); err == nil {
		t.Errorf("an order with a certificate by an authority that --tls-client-ca does not hold is taken: %s", out)
	}
	write(t, clients, read(t, roots))
	until(t, orders[1], orders[2:]...)
	if out := does(t, orders[1], "member", "ls"); strings.Contains(out, "\n2 ") {
		t.Errorf("after member remove 2 the members are\n%s", out)
	}
}

// operatorsOrder is the command of docs/operate.md by which an operator elsewhere shows a node's certificate.
func operatorsOrder(t *testing.T, hosts []string, ca, cert, key string) []string {
	h := openHandbook(t)
	args := h.script("Operators")[0]
	for text, is := range map[string]string{"web.pem": ca, "node1.pem": cert, "node1.key": key, h.net + "1": hosts[0] + "," + hosts[2], "'": ""} {
		args[1] = strings.ReplaceAll(args[1], text, is)
	}
	return args
}

// answering is how many nodes count for a client.
func answering(hosts []string, cfg *tls.Config, counter string) (n int) {
	for i, host := range hosts {
		if answers(host, cfg, fmt.Sprint(counter, i)) {
			n++
		}
	}
	return n
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// answersSoon asks until the node counts: a group may be without a leader for a moment.
func answersSoon(ctx context.Context, addr string, cfg *tls.Config, counter string) bool {
	ok := false
	for i := 0; !ok && ctx.Err() == nil; i++ {
		ok = answers(addr, cfg, fmt.Sprint(counter, "-", i))
	}
	return ok
}

// answers reports whether a node counts for a client.
func answers(addr string, cfg *tls.Config, counter string) bool {
	web := &http.Client{Transport: &http.Transport{TLSClientConfig: cfg, DisableKeepAlives: true}}
	res, err := web.Post("https://"+addr+"/v1/counters/"+counter+":add", "application/json", strings.NewReader(`{"amount":1}`))
	if err != nil {
		return false
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return err == nil && strings.TrimSpace(string(text)) == `{"value":1}`
}
