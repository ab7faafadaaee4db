//go:build !linux

package remote_test

import "testing"

// shelf is a directory for a node.
func shelf(t *testing.T) string {
	t.Helper()
	return t.TempDir()
}
