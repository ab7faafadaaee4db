//go:build unix

package backends

import (
	"context"
	"net"
	"testing"

	"github.com/holdfast-io/holdfast"
	_ "github.com/holdfast-io/holdfast/all"
	"github.com/holdfast-io/holdfast/internal/node/api"
	"github.com/holdfast-io/holdfast/internal/services"
	"github.com/holdfast-io/holdfast/server"
)

// All are the backends on which the promises of guards are tested.
var All = []string{"memory", "file", "PostgreSQL", "node"}

// Open is a Space on a backend of its own; the second is another client of it. Both close
// with the test.
func Open(t *testing.T, backend string) (a, b *holdfast.Space) {
	t.Helper()
	url := URL(t, backend)
	return Client(t, url), Client(t, url)
}

// URL is that of a backend of its own, which ends with the test.
func URL(t *testing.T, backend string) string {
	t.Helper()
	switch backend {
	case "file":
		return "file:" + t.TempDir()
	case "PostgreSQL":
		pg := services.SharedPostgreSQL(t)
		return pg.URL(pg.CreateDatabase(t))
	case "node":
		return "holdfast://" + Node(t)
	}
	return "mem://" + t.Name()
}

// Client opens a Space that closes with the test.
func Client(t *testing.T, url string) *holdfast.Space {
	t.Helper()
	s, err := holdfast.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// Node starts a server, which ends with the test, and returns its address.
func Node(t *testing.T) string {
	t.Helper()
	srv, err := server.New(server.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- api.Serve(ctx, ln, api.New(srv), api.Config{}) }()
	t.Cleanup(func() { cancel(); <-served; srv.Close() })
	return ln.Addr().String()
}
