package remote_test

import (
	"testing"

	"github.com/holdfast-io/holdfast/driver"
	_ "github.com/holdfast-io/holdfast/remote"
)

// A group is named by a list in which any node may have an IPv6 address.
func TestOpen_IPv6(t *testing.T) {
	for _, url := range []string{"holdfast://[::1]:1,[::1]:2", "holdfasts://[::1]:1,127.0.0.1:2", "holdfast://127.0.0.1:1,[::1]:2/team", "holdfast://[::1],[::1]"} {
		d, err := driver.Open(t.Context(), url)
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		if err := d.Close(t.Context()); err != nil {
			t.Errorf("%s: Close: %v", url, err)
		}
	}
}
