package manager_test

import (
	"context"
	"net"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast"
	_ "github.com/holdfast-io/holdfast/all"
	"github.com/holdfast-io/holdfast/internal/node/api"
	"github.com/holdfast-io/holdfast/internal/services"
	"github.com/holdfast-io/holdfast/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(services.Main(m)) }

// backends are where the promises about coordination hold.
var backends = []string{"memory", "file", "PostgreSQL", "node"}

// open is a Space on a backend of its own; the second is another client of it.
func open(t *testing.T, backend string) (a, b *holdfast.Space) {
	t.Helper()
	url := "mem://" + t.Name()
	switch backend {
	case "file":
		url = "file:" + t.TempDir()
	case "PostgreSQL":
		pg := services.SharedPostgreSQL(t)
		url = pg.URL(pg.CreateDatabase(t))
	case "node":
		url = "holdfast://" + node(t)
	}
	return client(t, url), client(t, url)
}

func client(t *testing.T, url string) *holdfast.Space {
	t.Helper()
	s, err := holdfast.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// node starts a server and returns its address.
func node(t *testing.T) string {
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
