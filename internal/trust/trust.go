// Package trust lets a URL name the servers that a client believes over TLS and the client
// itself: the parameters holdfast_tls_ca, holdfast_tls_cert and holdfast_tls_key
// name PEM files.
package trust

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
)

const prefix = "holdfast_tls_"

// Is reports whether a parameter is one for Read.
func Is(param string) bool { return strings.HasPrefix(param, prefix) }

// Read sets on cfg what the parameters name: ca is the signer of the servers'
// certificates (else the system's authorities), cert and key are what the client
// shows. cfg is nil where the URL does not ask for TLS: then there must be none.
func Read(cfg *tls.Config, params url.Values) error {
	for name := range params {
		if Is(name) && !slices.Contains([]string{"ca", "cert", "key"}, name[len(prefix):]) {
			return fmt.Errorf("no parameter %s; there are holdfast_tls_ca, holdfast_tls_cert and holdfast_tls_key", name)
		}
	}
	ca, cert, key := params.Get(prefix+"ca"), params.Get(prefix+"cert"), params.Get(prefix+"key")
	switch {
	case ca+cert+key == "":
		return nil
	case cfg == nil:
		return errors.New("certificates are for TLS, and the URL's scheme is not")
	case (cert == "") != (key == ""):
		return errors.New("holdfast_tls_cert and holdfast_tls_key belong together")
	}
	return load(cfg, ca, cert, key)
}

// Asked is Read for a URL that asks for TLS by naming a file; nil: it does not.
func Asked(params url.Values) (*tls.Config, error) {
	for name := range params {
		if Is(name) {
			cfg := &tls.Config{MinVersion: tls.VersionTLS12}
			return cfg, Read(cfg, params)
		}
	}
	return nil, nil
}

// load reads the files; "" is none.
func load(cfg *tls.Config, ca, cert, key string) error {
	if ca != "" {
		text, err := os.ReadFile(ca)
		if err != nil {
			return fmt.Errorf("holdfast_tls_ca: %v", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(text) {
			return fmt.Errorf("holdfast_tls_ca: %s has no certificate in PEM", ca)
		}
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return fmt.Errorf("holdfast_tls_cert: %v", err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return nil
}
