package transport

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"time"
)

// untrusted tells that this side refused a certificate, or the other this one's, or that one of the two
// speaks no TLS: no hello tells that. A connection that only ended is not told, as it may be a probe.
func (t *Transport) untrusted(peer uint64, addr string, err error) {
	if t.cfg.Refused == nil || !strings.Contains(err.Error(), "tls: ") { // so begin TLS's own errors, also those that the other side tells
		return
	}
	if out, ok := errors.AsType[x509.CertificateInvalidError](err); ok && out.Reason == x509.Expired {
		err = expired(out.Cert)
	}
	t.cfg.Refused(peer, fmt.Errorf("no connection between this node and %s: %w; %s", addr, err, trustAdvice(err)))
}

// errExpired is an error of x509 without the time of day in it: what is refused again and again has
// the same text each time, which is told less often for that.
var errExpired = errors.New("tls: the certificate of the other side has expired or is not yet valid")

func expired(c *x509.Certificate) error {
	return fmt.Errorf("%w: it is for the time from %s to %s", errExpired, c.NotBefore.Format(time.RFC3339), c.NotAfter.Format(time.RFC3339))
}

// errPlain: the first bytes of the other side were those of TLS.
var errPlain = errors.New("tls: the other side speaks TLS, and this node does not")

// trustAdvice says what to do about a certificate that was refused.
func trustAdvice(err error) string {
	_, elsewhere := errors.AsType[x509.HostnameError](err)
	_, plain := errors.AsType[tls.RecordHeaderError](err)
	invalid, _ := errors.AsType[x509.CertificateInvalidError](err)
	switch {
	case errors.Is(err, errExpired):
		return "renew --peer-cert there, or set the clocks of both right"
	case strings.Contains(err.Error(), "tls: expired certificate"): // so says the other side
		return "renew --peer-cert here, or set the clocks of both right"
	case elsewhere:
		return "--peer-cert has to be for the host at which the group has that node (holdfast member ls)"
	case invalid.Reason == x509.IncompatibleUsage && invalid.Cert != nil:
		return "--peer-cert has to be for servers and for clients (extended key usage)"
	case plain, errors.Is(err, errPlain):
		return "give all nodes --peer-cert, --peer-key and --peer-ca, or none"
	}
	return "see that --peer-cert and --peer-ca are of one authority on both nodes, and what the other one tells"
}
