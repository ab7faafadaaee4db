package all_test

import (
	"testing"

	"github.com/holdfast-io/holdfast"
	_ "github.com/holdfast-io/holdfast/all"
)

func TestEveryURL(t *testing.T) {
	for _, url := range []string{"mem:", "mem://shared"} {
		s, err := holdfast.Open(t.Context(), url)
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		if err := s.Close(); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
}
