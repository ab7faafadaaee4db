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
	form := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a := &Authority{}
	a.cert, a.key = sign(t, form, nil)
	return a
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
	cert, key := sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a)
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert}
}

// WriteRoots writes the certificate of a into a file, in PEM, and returns its path.
func (a *Authority) WriteRoots(t testing.TB, dir string) string {
	t.Helper()
	path := filepath.Join(dir, a.cert.Subject.CommonName+"-ca.pem")
	writePEM(t, path, "CERTIFICATE", a.cert.Raw)
	return path
}

// WritePair writes a certificate and its key into two files, in PEM; files that
// are there are replaced in one step each.
func WritePair(t testing.TB, c tls.Certificate, cert, key string) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		t.Fatalf("services: write a key: %v", err)
	}
	writePEM(t, cert, "CERTIFICATE", c.Certificate[0])
	writePEM(t, key, "PRIVATE KEY", der)
}

func writePEM(t testing.TB, path, kind string, der []byte) {
	t.Helper()
	anew := path + ".new"
	if err := os.WriteFile(anew, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatalf("services: write %s: %v", path, err)
	}
	if err := os.Rename(anew, path); err != nil {
		t.Fatalf("services: write %s: %v", path, err)
	}
}

// sign makes a certificate, signed by itself if there is no authority.
func sign(t testing.TB, form *x509.Certificate, by *Authority) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatalf("services: make a key: %v", err)
	}
	form.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatalf("services: number a certificate: %v", err)
	}
	form.NotBefore, form.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := form, key
	if by != nil {
		parent, signer = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, form, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatalf("services: sign a certificate: %v", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatalf("services: read a certificate: %v", err)
	}
	return cert, key
}
