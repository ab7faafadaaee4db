package natshold_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast/internal/services"
)

// TestMain also checks that nothing is left running when the tests have ended.
func TestMain(m *testing.M) { goleak.VerifyTestMain(services.Main(m)) }
