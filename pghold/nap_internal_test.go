package pghold

import (
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/internal/services"
)

// TestLinkNaps: a caller can nap on the link, and needs no poller.
func TestLinkNaps(t *testing.T) {
	if runtime.GOOS != "linux" {
		return // nobody naps there
	}
	pg := services.SharedPostgreSQL(t)
	l := home(t, newTestClient(t, pg.URL(pg.CreateDatabase(t)), time.Minute))
	switch conn := l.conn.PgConn().Conn().(type) {
	case *net.TCPConn, *net.UnixConn:
		t.Errorf("the link's connection is a %T", conn)
	}
}
