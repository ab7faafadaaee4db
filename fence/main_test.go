//go:build unix

package fence_test

import (
	"os"
	"testing"

	"github.com/holdfast-io/holdfast/internal/services"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if job := os.Getenv(jobVariable); job != "" {
		os.Exit(runJob(job))
	}
	goleak.VerifyTestMain(services.Main(m))
}
