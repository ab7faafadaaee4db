package all_test

import (
	"errors"
	"io/fs"
	"strings"
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

// A scheme that is registered refuses a bad URL for what is wrong with it.
func TestEveryScheme(t *testing.T) {
	for _, url := range []string{"nats://h/bad.bucket"} {
		if _, err := holdfast.Open(t.Context(), url); !errors.Is(err, fs.ErrInvalid) || strings.Contains(err.Error(), "no backend") {
			t.Errorf("%s: %v", url, err)
		}
	}
}
