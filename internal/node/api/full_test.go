package api_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/internal/node/api"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
	"github.com/holdfast-io/holdfast/server"
)

// A node with a full disk is ready, since it goes on with what frees something, and says in every
// place where an operator looks that it is full.
func TestFullDiskIsSeen(t *testing.T) {
	for _, reserve := range []int64{1, 1 << 60} {
		told, full := make(chan struct{}, 100), reserve > 1
		node, err := server.New(server.Config{Dir: t.TempDir(), Reserve: reserve, Notice: func(error) { told <- struct{}{} }})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { node.Close() })
		r := serveNode(t, node, api.Config{})
		if full {
			<-told
		}
		if st := must[*pb.StatusResponse](t)(pb.NewAdminServiceClient(r.conn).Status(r.ctx, &pb.StatusRequest{})); st.GetDiskFull() != full {
			t.Errorf("with a reserve of %d its status is %v", reserve, st)
		}
		if ready := r.page("/readyz"); !strings.Contains(ready, `"ready":true`) || strings.Contains(ready, `"disk_full":true`) != full {
			t.Errorf("with a reserve of %d: %s", reserve, ready)
		}
		if gauges := r.page("/metrics"); strings.Contains(gauges, "\nholdfast_disk_full 1\n") != full || strings.Contains(gauges, "\nholdfast_disk_full 0\n") == full {
			t.Errorf("with a reserve of %d: %s", reserve, gauges)
		}
	}
}

// page is what a path of the node answers.
func (r *rig) page(path string) string {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.ctx, "GET", "http://"+r.addr+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	res, err := r.web.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		r.t.Errorf("%s: %s, %v", path, res.Status, err)
	}
	return string(b)
}
