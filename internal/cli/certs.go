package cli

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// fresh is what is read from some files, and read again when they have changed:
// certificates are renewed while a node runs. What cannot be read, such as a file
// that is half written, leaves what was read before, and is told once.
type fresh[T any] struct {
	files []string
	read  func() (T, error)
	told  func(error)

	mu     sync.Mutex
	value  T
	seen   []stamp
	failed []stamp // what was told of
}

// stamp tells one state of a file from another.
type stamp struct {
	changed time.Time
	size    int64
}

func (s stamp) same(t stamp) bool { return s.changed.Equal(t.changed) && s.size == t.size }

// newFresh reads the files for the first time: then they have to be right.
func newFresh[T any](told func(error), read func() (T, error), files ...string) (*fresh[T], error) {
	f := &fresh[T]{files: files, read: read, told: told, seen: stamps(files)}
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
	if slices.EqualFunc(now, f.seen, stamp.same) {
		return f.value
	}
	value, err := f.read()
	switch {
	case err == nil:
		f.value, f.seen, f.failed = value, now, nil
	case !slices.EqualFunc(now, f.failed, stamp.same):
		f.failed = now
		f.told(fmt.Errorf("%s changed, and what is there now is no good, so that what was there before stays in use: %w; write it anew, and it is read", strings.Join(f.files, " or "), err))
	}
	return f.value
}

// identity is a certificate with its key.
type identity struct{ *fresh[*tls.Certificate] }

func newIdentity(told func(error), cert, key string) (identity, error) {
	f, err := newFresh(told, func() (*tls.Certificate, error) {
		c, err := tls.LoadX509KeyPair(cert, key)
		return &c, err
	}, cert, key)
	return identity{f}, err
}

// server and client show the certificate of now.
func (i identity) server(*tls.ClientHelloInfo) (*tls.Certificate, error) { return i.get(), nil }

func (i identity) client(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return i.get(), nil }

// newRoots reads the authorities that sign certificates.
func newRoots(told func(error), file string) (*fresh[*x509.CertPool], error) {
	return newFresh(told, func() (*x509.CertPool, error) {
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
