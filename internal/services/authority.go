//go:build unix

package services

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// An Authority signs certificates that a test trusts, and nobody else.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority makes an Authority.
func NewAuthority(t testing.TB, name string) *Authority {
	t.Helper()
	a, err := newAuthority(name)
	made(t, err)
	return a
}

func newAuthority(name string) (*Authority, error) {
	cert, key, err := sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, nil)
	return &Authority{cert, key}, err
}

// Roots are the certificates that a client or server which trusts a has.
func (a *Authority) Roots() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// Issue makes a certificate for 127.0.0.1, of a server and a client alike.
func (a *Authority) Issue(t testing.TB, name string) tls.Certificate {
	t.Helper()
	c, err := a.issue(name)
	made(t, err)
	return c
}

func (a *Authority) issue(name string) (tls.Certificate, error) {
	cert, key, err := sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(127, 0, 0, 2)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert}, nil
}

// WriteRoots writes the certificate of a into a file, in PEM, and returns its path.
func (a *Authority) WriteRoots(t testing.TB, dir string) string {
	t.Helper()
	path := filepath.Join(dir, a.cert.Subject.CommonName+"-ca.pem")
	made(t, writePEM(path, "CERTIFICATE", a.cert.Raw))
	return path
}

// WritePair writes a certificate and its key into two files, in PEM; files that
// are there are replaced in one step each.
func WritePair(t testing.TB, c tls.Certificate, cert, key string) {
	t.Helper()
	made(t, writePair(c, cert, key))
}

func writePair(c tls.Certificate, cert, key string) error {
	der, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		return err
	}
	return errors.Join(writePEM(cert, "CERTIFICATE", c.Certificate[0]), writePEM(key, "PRIVATE KEY", der))
}

func writePEM(path, kind string, der []byte) error {
	anew := path + ".new"
	if err := os.WriteFile(anew, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		return err
	}
	return os.Rename(anew, path)
}

// sign makes a certificate, signed by itself if there is no authority.
func sign(form *x509.Certificate, by *Authority) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	if form.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62)); err != nil {
		return nil, nil, err
	}
	form.NotBefore, form.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	parent, signer := form, key
	if by != nil {
		parent, signer = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, form, parent, &key.PublicKey, signer)
	if err != nil {
		return nil, nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return cert, key, err
}

func made(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("services: make a certificate: %v", err)
	}
}
