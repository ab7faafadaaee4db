//go:build unix

package services

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/holdfast-io/holdfast/internal/services/programs"
)

// An Option changes how a server is started.
type Option func(*options)

type options struct {
	durable  bool
	settings []setting
	password string
	master   *RedisServer
	tls      bool
}

type setting struct{ name, value string }

// Durable makes what the server has acknowledged survive a crash of the
// machine: Redis appends and syncs every write (without it, a restarted Redis
// is empty), PostgreSQL syncs every commit (without it, commits survive Kill
// but not a power cut), NATS syncs every message.
func Durable() Option { return func(o *options) { o.durable = true } }

// Setting adds one line to the configuration of Redis, PostgreSQL, PgBouncer or
// NATS, such as ("maxmemory", "10mb") or ("max_connections", "20"). The
// value is written as it is, with any quotes the server wants, and wins over
// what the harness sets.
func Setting(name, value string) Option {
	return func(o *options) { o.settings = append(o.settings, setting{name, value}) }
}

// Password makes Redis ask its clients for a password.
func Password(password string) Option { return func(o *options) { o.password = password } }

// ReplicaOf makes a Redis server follow master. It counts as ready when the
// first synchronisation is complete.
func ReplicaOf(master *RedisServer) Option { return func(o *options) { o.master = master } }

// TLS makes Redis serve TLS only, with certificates of its own; see
// [RedisServer.Certs].
func TLS() Option { return func(o *options) { o.tls = true } }

func collect(opts []Option) options {
	var o options
	for _, apply := range opts {
		apply(&o)
	}
	return o
}

// check rejects options that a server other than Redis, which knows all, does
// not know.
func (o options) check(durable bool) error {
	switch {
	case o.password != "" || o.master != nil || o.tls:
		return errors.New("the options Password, ReplicaOf and TLS are for Redis only")
	case o.durable && !durable:
		return errors.New("option Durable: this server keeps no data")
	}
	return nil
}

// locate finds the program of a server, or the URL of the running server that
// the environment names in its place, or installs the program.
func locate(ctx context.Context, p programs.Program, opts []Option) (path, url string, err error) {
	path, err = p.Find()
	if err == nil {
		return path, "", nil
	}
	if url := os.Getenv(p.Variable); url != "" {
		return "", url, optionless(p, opts, err)
	}
	path, err = p.Ensure(ctx)
	return path, "", err
}

func optionless(p programs.Program, opts []Option, missing error) error {
	if len(opts) == 0 {
		return nil
	}
	return errors.Join(fmt.Errorf("options cannot be given to the server that %s names", p.Variable), missing)
}
