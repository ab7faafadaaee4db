package cli

import (
	"errors"
	"strings"
	"testing"
)

// A node that does not answer for its certificate, or for that of the caller, runs: it is not to be started.
func TestStatus_CertificatesThatDoNotFit(t *testing.T) {
	for text, want := range map[string]string{
		`connection error: desc = "transport: authentication handshake failed: x509: certificate signed by unknown authority"`: "holdfast_tls_ca",
		"10.0.0.1:7420 does not answer: remote error: tls: certificate required":                                               "holdfast_tls_cert",
		"dial tcp 10.0.0.1:7420: connect: connection refused":                                                                  "holdfast serve",
	} {
		if got := silentHint(text); !strings.Contains(got, want) {
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
