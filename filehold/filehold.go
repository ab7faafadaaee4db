package filehold

import (
	"context"
	"io/fs"
	"net/url"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

func init() { driver.Register("file", openURL) }

// Open returns a Space in dir, which is made if only its last element is
// missing.
func Open(dir string, opts ...holdfast.Option) (*holdfast.Space, error) {
	d, err := New(dir)
	if err != nil {
		return nil, err
	}
	return holdfast.New(d, opts...)
}

// New returns a driver on dir, for [holdfast.New].
func New(dir string) (driver.Driver, error) {
	if dir == "" {
		return nil, driver.Errorf("open", "file:", fs.ErrInvalid, "no directory is given: use file:///path/of/a/directory")
	}
	return open(dir)
}

// openURL opens file:///dir.
func openURL(_ context.Context, u *url.URL) (driver.Driver, error) {
	if u.Host != "" || u.Opaque != "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Path == "" {
		return nil, driver.Errorf("open", driver.Redacted(u), fs.ErrInvalid, "use file:///path/of/a/directory: three slashes, no host, nothing after the path")
	}
	return New(u.Path)
}
