//go:build unix

package services

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"syscall"
	"testing"
)

// Ports are taken from below the range of ports which kernels give to outgoing
// connections. Otherwise a client that keeps dialling a server that has ended can be given
// the server's port, connect to itself, and keep the server from coming back.
const (
	firstPort = 20000
	lastPort  = 31999
	portTries = 1000
)

// A site is the place of one server: a directory and a reserved port.
type site struct {
	dir      string
	port     int
	reserved io.Closer
}

// newSite makes a place that belongs to the user in as (nil: to this one).
func newSite(name string, as *syscall.Credential) (*site, error) {
	holdScratch()
	s, err := makeSite(name, as)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make a place for %s: %w", name, err), dropScratch())
	}
	return s, nil
}

func makeSite(name string, as *syscall.Credential) (*site, error) {
	dir, err := ownedDir(name+"-", as)
	if err != nil {
		return nil, err
	}
	port, reserved, err := reservePort()
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return &site{dir: dir, port: port, reserved: reserved}, nil
}

func ownedDir(prefix string, as *syscall.Credential) (string, error) {
	root, err := scratchDir()
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(root, prefix)
	if err != nil {
		return "", err
	}
	if as != nil {
		err = os.Chown(dir, int(as.Uid), int(as.Gid))
	}
	return dir, err
}

func (s *site) addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

func (s *site) close() error {
	return errors.Join(s.reserved.Close(), os.RemoveAll(s.dir), dropScratch())
}

// Addr is a free address on the loopback interface, kept from other test binaries
// until tb ends: a server of the test can listen there, stop and come back.
func Addr(tb testing.TB) string {
	tb.Helper()
	port, reserved, err := reservePort()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = reserved.Close() })
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// reservePort finds a free TCP port on the loopback address and keeps other
// test binaries from choosing it, also while the server is down, until reserved
// is closed. The mark is the UDP port of the same number: the kernel gives it to
// one process only and frees it with the process.
func reservePort() (port int, reserved io.Closer, err error) {
	for range portTries {
		port = firstPort + rand.IntN(lastPort-firstPort+1)
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		mark, err := net.ListenPacket("udp", addr)
		if err != nil {
			continue
		}
		if probe, err := net.Listen("tcp", addr); err == nil {
			return port, mark, probe.Close()
		}
		_ = mark.Close()
	}
	return 0, nil, fmt.Errorf("no free port between %d and %d in %d tries", firstPort, lastPort, portTries)
}
