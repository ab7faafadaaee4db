package filehold_test

import (
	"testing"

	"github.com/holdfast-io/holdfast/drivertest"
	_ "github.com/holdfast-io/holdfast/filehold"
)

// TestConformance runs the suite that every backend passes, with clients that
// share one directory.
func TestConformance(t *testing.T) {
	drivertest.Run(t, drivertest.URL("file://"+t.TempDir()))
}
