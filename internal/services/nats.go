//go:build unix

package services

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

const (
	natsVariable = "HOLDFAST_TEST_NATS_URL"
	natsPatience = time.Second
)

// A NATSServer is a running NATS server with JetStream.
type NATSServer struct{ Process }

// NATS starts a NATS server with JetStream for this test. The server is linked
// into the test binary and runs as a process of its own, so it needs no
// installation and can still be killed and frozen. Options: [Durable], and
// [Setting] with lines of its configuration; ("jetstream", "disabled") leaves
// JetStream out.
func NATS(t testing.TB, opts ...Option) *NATSServer {
	t.Helper()
	o := collect(opts)
	if err := o.check(true); err != nil {
		t.Fatalf("services: nats: %v", err)
	}
	return &NATSServer{begin(t, func() (*unit, error) { return launchNATS(o) })}
}

// SharedNATS returns the NATS server that all tests of the package share. It
// is not empty: each test uses streams and buckets of its own. It needs [Main].
func SharedNATS(t testing.TB) *NATSServer {
	t.Helper()
	return &NATSServer{borrow(t, &shared.nats, natsVariable, func() (*unit, error) { return launchNATS(options{}) })}
}

// URL returns the server's address as "nats://host:port".
func (s *NATSServer) URL() string { return s.url.String() }

// natsPlan is what the child process that serves has to know.
type natsPlan struct {
	Name     string // tells this server from others
	Port     int
	Dir      string
	Sync     bool
	Settings string // lines of a configuration
	Plain    bool   // without JetStream
}

func launchNATS(o options) (*unit, error) {
	place, err := newSite("nats", nil)
	if err != nil {
		return nil, err
	}
	plan := natsPlan{Name: filepath.Base(place.dir), Port: place.port, Dir: place.dir, Sync: o.durable}
	for _, line := range o.settings {
		plan.Settings += line.name + ": " + line.value + "\n"
		plan.Plain = plan.Plain || line == setting{"jetstream", "disabled"}
	}
	u := &unit{
		name:    "nats-server",
		place:   place,
		url:     &url.URL{Scheme: "nats", Host: place.addr()},
		command: plan.command,
		ready:   func(int) error { return natsReady(place.addr(), plan) },
		quit:    syscall.SIGTERM,
		drop:    syscall.SIGKILL,
	}
	return u.start()
}

func (p natsPlan) command() *exec.Cmd {
	text, err := json.Marshal(p)
	if err != nil {
		return &exec.Cmd{Err: err}
	}
	cmd := reexec(natsRole, string(text))
	cmd.SysProcAttr = attributes(nil)
	return cmd
}

// natsReady reads the greeting, which names the server.
func natsReady(addr string, plan natsPlan) error {
	conn, err := net.DialTimeout("tcp", addr, natsPatience)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(natsPatience)); err != nil {
		return err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return err
	}
	var info struct {
		Name      string `json:"server_name"`
		JetStream bool   `json:"jetstream"`
	}
	if err := json.Unmarshal([]byte(strings.TrimPrefix(line, "INFO ")), &info); err != nil {
		return fmt.Errorf("greeting %q: %w", line, err)
	}
	if info.Name != plan.Name || info.JetStream == plan.Plain {
		return fmt.Errorf("greeting %q: want server %s with JetStream %t", line, plan.Name, !plan.Plain)
	}
	return nil
}

// natsMain serves until SIGTERM.
func natsMain(text string) int {
	terminate := make(chan os.Signal, 1)
	signal.Notify(terminate, syscall.SIGTERM)
	var plan natsPlan
	if err := json.Unmarshal([]byte(text), &plan); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	opts, err := plan.options()
	var s *server.Server
	if err == nil {
		s, err = server.NewServer(opts)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	s.ConfigureLogger()
	go s.Start()
	<-terminate
	s.Shutdown()
	s.WaitForShutdown()
	return 0
}

// options are the settings, and over them what makes it this server.
func (p *natsPlan) options() (*server.Options, error) {
	file := filepath.Join(p.Dir, "nats.conf")
	if err := os.WriteFile(file, []byte(p.Settings), 0o600); err != nil {
		return nil, err
	}
	opts, err := server.ProcessConfigFile(file)
	if err != nil {
		return nil, err
	}
	opts.ServerName, opts.Host, opts.Port, opts.NoSigs = p.Name, "127.0.0.1", p.Port, true
	opts.JetStream, opts.StoreDir = !p.Plain, p.Dir
	opts.SyncAlways = opts.SyncAlways || p.Sync
	return opts, nil
}
