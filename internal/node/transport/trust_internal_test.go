package transport

import (
	"crypto/x509"
	"errors"
	"strings"
	"testing"
)

// Each cause has its own advice.
func TestTrustAdvice(t *testing.T) {
	for want, err := range map[string]error{
		"renew --peer-cert here":           errors.New("remote error: tls: expired certificate"),
		"for servers and for clients":      x509.CertificateInvalidError{Cert: &x509.Certificate{}, Reason: x509.IncompatibleUsage},
		"of one authority on both nodes":   x509.UnknownAuthorityError{},
		"and what the other one tells":     errors.New("remote error: tls: bad certificate"),
		"--peer-cert has to be for the ho": x509.HostnameError{Certificate: &x509.Certificate{}, Host: "a"},
	} {
		if got := trustAdvice(err); !strings.Contains(got, want) {
			t.Errorf("%v: %s", err, got)
		}
	}
}
