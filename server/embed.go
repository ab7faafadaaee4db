package server

import (
	"context"
	"io/fs"
	"net/url"
	"path/filepath"
	"sync"

	"github.com/holdfast-io/holdfast/driver"
)

func init() { driver.Register("embed", openURL) }

// embedded are the nodes that URLs have started, by directory. Spaces of one
// process on one directory share its node; the last one to close stops it.
var embedded = struct {
	sync.Mutex
	byDir map[string]*shared
}{byDir: map[string]*shared{}}

type shared struct {
	s     *Server
	users int
}

// openURL opens embed:///path/of/a/directory.
func openURL(_ context.Context, u *url.URL) (driver.Driver, error) {
	if u.Host != "" || u.Opaque != "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Path == "" {
		return nil, driver.Errorf("open", driver.Redacted(u), fs.ErrInvalid, "use embed:///path/of/a/directory: three slashes, no host, nothing after the path")
	}
	dir := filepath.Clean(u.Path)
	embedded.Lock()
	defer embedded.Unlock()
	n := embedded.byDir[dir]
	if n == nil {
		s, err := New(Config{Dir: dir})
		if err != nil {
			return nil, err
		}
		n = &shared{s: s}
		s.near().left = func() { leave(dir, n) }
		embedded.byDir[dir] = n
	}
	n.users++
	return n.s.Driver(), nil
}

// leave is the end of one Space of a node. The lock is kept until the node has
// stopped, so that nobody opens a directory that is still in use.
func leave(dir string, n *shared) {
	embedded.Lock()
	defer embedded.Unlock()
	if n.users--; n.users > 0 {
		return
	}
	delete(embedded.byDir, dir)
	_ = n.s.Close() // a node that failed has told every call why
}
