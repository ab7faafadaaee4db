package cli

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/node/api"
)

// A node that does not answer for its certificate, for that of the caller, or since one of the two speaks TLS alone, runs: it is
// not to be started, and the backend is up.
func TestTrustHint(t *testing.T) {
	for text, want := range map[string]string{
		`connection error: desc = "transport: authentication handshake failed: x509: certificate signed by unknown authority"`:                                                                                    "holdfast_tls_ca",
		"10.0.0.1:7420 does not answer: remote error: tls: certificate required":                                                                                                                                  "holdfast_tls_cert",
		`connection error: desc = "transport: authentication handshake failed: tls: first record does not look like a TLS handshake"`:                                                                             "write holdfast://",
		`connection error: desc = "transport: authentication handshake failed: read: connection reset by peer"`:                                                                                                   "write holdfast://",
		`"error reading server preface: http2: frame too large, note that the frame header looked like an HTTP/1.1 header"`:                                                                                       "write holdfasts://",
		`ask the leader "10.0.0.3:7420": unavailable: tls: failed to verify certificate: x509: certificate is valid for 10.0.0.9, not for 10.0.0.3`:                                                               "--tls-cert of that node",
		"failed to connect to `user=app database=app`: 10.0.0.1:5432 (10.0.0.1): failed to write startup message: write failed: tls: failed to verify certificate: x509: certificate signed by unknown authority": "docs/backends.md",
		"no connection: tls: first record does not look like a TLS handshake":                                                                                                                                     "docs/backends.md",
	} {
		for _, kind := range []error{context.DeadlineExceeded, driver.ErrUnavailable} {
			err := &driver.Error{Kind: kind, Err: errors.New(text)}
			for _, f := range []*failure{failureOf(unanswered(err)), failureOf(unopened(err))} {
				if !strings.Contains(f.hint, want) {
					t.Errorf("%v, %s: %s", kind, text, f.hint)
				}
			}
		}
	}
	for _, text := range []string{
		"dial tcp 10.0.0.1:7420: connect: connection refused",
		`connection error: desc = "transport: authentication handshake failed: context deadline exceeded"`,
	} {
		if got := trustHint(text); got != "" {
			t.Errorf("%s: %s", text, got)
		}
	}
}

// A number that no node has is refused, where it would have been node 1 without a word.
func TestServe_NumberZero(t *testing.T) {
	cmd := (&app{}).serveCommand()
	cmd.SetArgs([]string{"--id", "0", "--data", t.TempDir(), "--listen", "none"})
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	f, ok := errors.AsType[*failure](cmd.Execute())
	if !ok || f.code != exitUsage || !strings.Contains(f.Error(), "--id 0") {
		t.Errorf("it says %v", f)
	}
}

// An address at which nobody can listen is not one at which another node does.
func TestServe_NoAddress(t *testing.T) {
	taken := bound(t).Addr().String()
	for addr, want := range map[string]struct {
		code int
		hint string
	}{
		"127.0.0.1:99999": {exitUsage, "HOST:PORT"},
		"127.0.0.1":       {exitUsage, "HOST:PORT"},
		"::1:7420":        {exitUsage, "HOST:PORT"},
		taken:             {exitFailed, "is another node running?"},
	} {
		_, err := (&serving{listen: addr}).open(&api.Config{})
		_, admin := (&serving{listen: "127.0.0.1:0", admin: addr}).open(&api.Config{})
		for flag, err := range map[string]error{"--listen": err, "--admin": admin} {
			f, ok := errors.AsType[*failure](err)
			if !ok || f.code != want.code || !strings.Contains(f.hint, want.hint) || !strings.Contains(f.hint, flag) {
				t.Errorf("%s %s: %v, %+v", flag, addr, err, f)
			}
		}
	}
}

// An address of another machine, and a name that leads to none, are told as such. The errors are made, as what the
// system says of a real one depends on the network of the machine.
func TestServe_NotHere(t *testing.T) {
	for hint, err := range map[string]error{
		"an address of this machine": os.NewSyscallError("bind", syscall.EADDRNOTAVAIL),
		"a name that leads to one":   &net.DNSError{Err: "no such host", Name: "host.invalid", IsNotFound: true},
	} {
		for _, flag := range []string{"listen", "admin", "peer"} {
			f, ok := errors.AsType[*failure](unbound(flag, &net.OpError{Op: "listen", Net: "tcp", Err: err}))
			if !ok || f.code != exitFailed || !strings.Contains(f.hint, hint) || !strings.Contains(f.hint, "--"+flag) || !errors.Is(f, err) {
				t.Errorf("--%s, %v: %+v", flag, err, f)
			}
		}
	}
}
