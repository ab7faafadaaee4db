package gather

import (
	"slices"
	"testing"

	"github.com/holdfast-io/holdfast/driver"
)

// A watch is narrow, and yet tells of what a key stands for.
func TestPattern_Prefixes(t *testing.T) {
	ours, others := map[driver.Feature]bool{driver.FeatureReclaim: true}, map[driver.Feature]bool{}
	for _, c := range []struct {
		text     string
		features map[driver.Feature]bool
		want     []string
	}{
		{"lock:main:denied", ours, []string{"main"}},
		{"lock:main:denied", others, []string{EventPrefix, "main"}},
		{"semaphore:agents-*:*", others, []string{EventPrefix, "agents-"}},
		{"lock:main:released", others, []string{"main"}},
		{"guard:first:passed", ours, []string{EventPrefix}},
		{"*:main:released", ours, []string{""}},
	} {
		p, err := ParsePattern(c.text)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.prefixes(c.features); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.text, got, c.want)
		}
	}
}
