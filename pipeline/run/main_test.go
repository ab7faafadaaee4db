package run_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast/internal/services"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(services.Main(m)) }
