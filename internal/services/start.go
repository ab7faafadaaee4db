//go:build unix

package services

import (
	"net"
	"net/url"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// startPatience bounds one try to reach a program that was started.
const startPatience = time.Second

// Start runs any server program for this test, in a directory of its own, and
// returns when addr accepts connections. The program is killed when the test
// ends.
func Start(t testing.TB, name, addr string, command func(dir string) *exec.Cmd) *Process {
	t.Helper()
	p := begin(t, func() (*unit, error) {
		place, err := newSite(name, nil)
		if err != nil {
			return nil, err
		}
		u := &unit{
			name: name, place: place, url: &url.URL{Host: addr},
			command: func() *exec.Cmd {
				cmd := command(place.dir)
				cmd.SysProcAttr = attributes(nil)
				return cmd
			},
			ready: func(int) error { return accepts(addr) },
			quit:  syscall.SIGTERM,
			drop:  syscall.SIGKILL,
		}
		return u.start()
	})
	return &p
}

func accepts(addr string) error {
	conn, err := net.DialTimeout("tcp", addr, startPatience)
	if err != nil {
		return err
	}
	return conn.Close()
}
