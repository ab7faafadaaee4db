package owner_test

import (
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/owner"
	_ "github.com/holdfast-io/holdfast/memhold"
)

// Whatever a program is called, it can hold.
func TestOf(t *testing.T) {
	for program, end := range map[string]string{
		"/bin/true": "/true", "Überprüfung": "/Überprüfung", "a\xffb": "/a?b", "a\x1b\nb": "/a??b", "": "/.",
		strings.Repeat("é", 1000): "/" + strings.Repeat("é", 127),
	} {
		name := owner.Of(program)
		if !strings.HasSuffix(name, end) {
			t.Errorf("%q is called %q", program, name)
		}
		s, err := holdfast.Open(t.Context(), "mem:", holdfast.Owner(name))
		if err != nil {
			t.Errorf("%q: %v", program, err)
			continue
		}
		s.Close()
	}
}
