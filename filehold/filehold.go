package filehold

import (
	"context"
	"fmt"
	"io/fs"
	"net/url"
	"strconv"

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
	s, err := holdfast.New(d, opts...)
	if err != nil {
		_ = d.Close(context.Background())
		return nil, err
	}
	return s, nil
}

// New returns a driver on dir, for [holdfast.New].
func New(dir string) (driver.Driver, error) {
	if dir == "" {
		return nil, driver.Errorf("open", "file:", fs.ErrInvalid, "no directory is given: use file:///path/of/a/directory")
	}
	return open(dir, 0)
}

// openURL opens file:///dir, or file:///dir?mode=0660.
func openURL(_ context.Context, u *url.URL) (driver.Driver, error) {
	if u.Host != "" || u.Opaque != "" || u.User != nil || u.Fragment != "" || u.Path == "" {
		return nil, driver.Errorf("open", driver.Redacted(u), fs.ErrInvalid, "use file:///path/of/a/directory: three slashes, no host, nothing after the path but ?mode=0660")
	}
	perm, err := permOf(u.Query())
	if err != nil {
		return nil, driver.Errorf("open", driver.Redacted(u), fs.ErrInvalid, "%v", err)
	}
	return open(u.Path, perm)
}

// permOf is the mode that a URL asks for; 0: none.
func permOf(query url.Values) (fs.FileMode, error) {
	for name := range query {
		if name != "mode" {
			return 0, fmt.Errorf("no parameter %q; there is mode", name)
		}
	}
	switch text := query.Get("mode"); text {
	case "":
		return 0, nil
	case "0600", "0660", "0666":
		perm, err := strconv.ParseUint(text, 8, 32)
		return fs.FileMode(perm), err
	default:
		return 0, fmt.Errorf("mode=%s: it is 0600 (one user), 0660 (a group) or 0666 (everybody): every user of a shared directory reads and writes it", text)
	}
}
