package services_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/internal/services"
)

func TestPostgreSQLLeavesNoSharedMemory(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*services.PostgreSQLServer){
		"killed":  (*services.PostgreSQLServer).Kill,
		"stopped": (*services.PostgreSQLServer).Stop,
	} {
		var segment string
		t.Run(name, func(t *testing.T) {
			s := services.PostgreSQL(t)
			segment = sharedMemory(t, one[string](t, pgConn(t, s.URL("postgres")), "SHOW data_directory"))
			if !segmentExists(t, segment) {
				t.Fatalf("running server has no segment %s", segment)
			}
			end(s)
		})
		if segmentExists(t, segment) {
			t.Errorf("%s server left segment %s", name, segment)
		}
	}
}

func sharedMemory(t testing.TB, cluster string) string {
	status, err := os.ReadFile(filepath.Join(cluster, "postmaster.pid"))
	lines := strings.Split(string(must(t, status, err)), "\n")
	return strings.Fields(lines[6])[1]
}

func segmentExists(t testing.TB, id string) bool {
	t.Helper()
	table, err := os.ReadFile("/proc/sysvipc/shm")
	for line := range strings.Lines(string(must(t, table, err))) {
		if strings.Fields(line)[1] == id {
			return true
		}
	}
	return false
}
