package cli

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync"
	"time"
)

// fresh is what is read from some files, and read again when they have changed:
// certificates are renewed while a node runs. What cannot be read, such as a file
// that is half written, leaves what was read before.
type fresh[T any] struct {
	files []string
	read  func() (T, error)

	mu    sync.Mutex
	value T
	seen  []stamp
}

// stamp tells one state of a file from another.
type stamp struct {
	changed time.Time
	size    int64
}

// newFresh reads the files for the first time: then they have to be right.
func newFresh[T any](read func() (T, error), files ...string) (*fresh[T], error) {
	f := &fresh[T]{files: files, read: read, seen: stamps(files)}
	var err error
	f.value, err = read()
	return f, err
}

func stamps(files []string) []stamp {
	list := make([]stamp, len(files))
	for i, name := range files {
		if info, err := os.Stat(name); err == nil {
			list[i] = stamp{info.ModTime(), info.Size()}
		}
	}
	return list
}

// get is what the files say now.
func (f *fresh[T]) get() T {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := stamps(f.files)
	for i := range now {
		if now[i].changed.Equal(f.seen[i].changed) && now[i].size == f.seen[i].size {
			continue
		}
		if value, err := f.read(); err == nil {
			f.value, f.seen = value, now
		}
		break
	}
	return f.value
}

// identity is a certificate with its key.
type identity struct{ *fresh[*tls.Certificate] }

func newIdentity(cert, key string) (identity, error) {
	f, err := newFresh(func() (*tls.Certificate, error) {
		c, err := tls.LoadX509KeyPair(cert, key)
		return &c, err
	}, cert, key)
	return identity{f}, err
}

// server and client show the certificate of now.
func (i identity) server(*tls.ClientHelloInfo) (*tls.Certificate, error) { return i.get(), nil }

func (i identity) client(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return i.get(), nil }

// newRoots reads the authorities that sign certificates.
func newRoots(file string) (*fresh[*x509.CertPool], error) {
	return newFresh(func() (*x509.CertPool, error) {
		pem, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s has no certificate in PEM", file)
		}
		return pool, nil
	}, file)
}
