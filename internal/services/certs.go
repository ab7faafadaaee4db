//go:build unix

package services

import (
	"errors"
	"path/filepath"
)

// Certs are the paths of PEM files: a certificate for 127.0.0.1, for servers
// and clients, its key, and the authority that signed it.
type Certs struct{ CA, Cert, Key string }

func certsIn(dir string) Certs {
	return Certs{CA: filepath.Join(dir, "ca.pem"), Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
}

// makeCerts writes new certificates into dir.
func makeCerts(dir string) error {
	a, err := newAuthority("tests")
	if err != nil {
		return err
	}
	pair, err := a.issue("127.0.0.1")
	if err != nil {
		return err
	}
	c := certsIn(dir)
	return errors.Join(writePEM(c.CA, "CERTIFICATE", a.cert.Raw), writePair(pair, c.Cert, c.Key))
}
