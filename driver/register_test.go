package driver_test

import (
	"context"
	"errors"
	"io/fs"
	"net/url"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/driver"
)

func init() {
	driver.Register("reg", func(_ context.Context, u *url.URL) (driver.Driver, error) {
		if u.Host == "" {
			return nil, errors.New("no host")
		}
		return driver.Base{}, nil
	})
}

func TestOpen(t *testing.T) {
	d, err := driver.Open(t.Context(), "reg://host/path")
	if err != nil || d == nil {
		t.Errorf("Open: %v", err)
	}
	if _, err := driver.Open(t.Context(), "reg:"); err == nil || err.Error() != "no host" {
		t.Errorf("a backend's own error: %v", err)
	}
}

// No error of Open shows a password, whatever is wrong with the URL.
func TestOpen_Errors(t *testing.T) {
	tests := map[string]string{
		"nope://user:hunter2@host":      `holdfast: open "nope://user:xxxxx@host": invalid argument: no backend for the scheme "nope"; known: reg (import github.com/holdfast-io/holdfast/all for every one)`,
		"user:hunter2@host":             `open "user:": invalid argument: no backend for the scheme "user"`,
		"://user:hunter2@host":          "not a URL",
		"nope://app:hunter2/x@host":     "not a URL; the special characters of a password have to be percent-encoded",
		"nope://app:hunter2#x@host":     "not a URL",
		"nope://app:hunter2?x@host":     "not a URL",
		"nope://app:47/hunter2@host":    `open "nope://xxxxx"`,
		"nope://app:47hunter2/x@host":   "not a URL",
		"nope://hunter2:47/x@host":      `open "nope://xxxxx"`,
		"nope://hunter2:47?x@host":      `open "nope://xxxxx"`,
		"nope://hunter2:47#x@host":      `open "nope://xxxxx"`,
		"nope://app:p@ss/hunter2@host":  `open "nope://xxxxx"`,
		"nope://app:p@ss?hunter2@host":  `open "nope://xxxxx"`,
		"nope://app:p@ss#hunter2@host":  `open "nope://xxxxx"`,
		"nope://app:x%hunter2@host":     "not a URL",
		"nope://app:%hu/nter2@host":     "not a URL",
		"nope://user:hunter2@host:x/":   "not a URL",
		"nope://user:hunter2%zz@host":   "not a URL",
		"nope://us er:hunter2@host":     "not a URL",
		"nope://[::hunter2":             "not a URL",
		"hunter2\x00":                   "not a URL",
		"/var/lock":                     `open "/var/lock": invalid argument: no backend for the scheme ""`,
		"nope:user:hunter2@host":        "no backend",
		"nope://host/?password=hunter2": "no backend",
		"nope://host/#hunter2":          "no backend",
		"reg://host/?a=hunter2;b=c":     `open "reg://host/": invalid argument: a parameter cannot be read`,
		"reg://host/?a=hunter2&b=%zz":   "a parameter cannot be read; the special characters of its value have to be percent-encoded",
	}
	for raw, part := range tests {
		_, err := driver.Open(t.Context(), raw)
		if !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("%q: %v", raw, err)
			continue
		}
		if text := err.Error(); !strings.Contains(text, part) || strings.Contains(text, "hunter2") {
			t.Errorf("%q: %s\nwant %q and no password", raw, text, part)
		}
	}
}

func TestRegister_Twice(t *testing.T) {
	defer func() {
		if r := recover(); r != "holdfast: URL scheme registered twice: reg" {
			t.Errorf("panic %v", r)
		}
	}()
	driver.Register("reg", nil)
}
