package driver

import (
	"context"
	"io/fs"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/holdfast-io/holdfast/internal/hostlist"
)

// Opener opens a backend by its URL.
type Opener func(ctx context.Context, u *url.URL) (Driver, error)

var registry = struct {
	sync.Mutex
	openers map[string]Opener
}{openers: map[string]Opener{}}

// Register makes a URL scheme known; backends call it in init. Registering a
// scheme twice is a mistake in the program and panics.
func Register(scheme string, open Opener) {
	registry.Lock()
	defer registry.Unlock()
	if registry.openers[scheme] != nil {
		panic("holdfast: URL scheme registered twice: " + scheme)
	}
	registry.openers[scheme] = open
}

// Open opens the backend that rawURL names.
func Open(ctx context.Context, rawURL string) (Driver, error) {
	u, err := hostlist.Parse(rawURL)
	if err != nil {
		return nil, Errorf("open", "", fs.ErrInvalid, "%v", err)
	}
	open, known := lookup(u.Scheme)
	if open == nil {
		return nil, Errorf("open", Redacted(u), fs.ErrInvalid,
			"no backend for the scheme %q; known: %s (import github.com/holdfast-io/holdfast/all for every one)",
			u.Scheme, strings.Join(known, ", "))
	}
	if _, err := url.ParseQuery(u.RawQuery); err != nil { // else backends would go on without that parameter
		return nil, Errorf("open", Redacted(u), fs.ErrInvalid, "a parameter cannot be read; the special characters of its value have to be percent-encoded")
	}
	return open(ctx, u)
}

// Redacted is u as it may be shown: without password, query and fragment, and
// without what follows the scheme if that is no host or path. Where a password that is not
// percent-encoded reaches beyond the host (an @ comes later), only the scheme is shown:
// what looks like host and path is part of it. Backends use it in their errors.
func Redacted(u *url.URL) string {
	shown := url.URL{Scheme: u.Scheme, User: u.User, Host: u.Host, Path: u.Path}
	if u.Host != "" && strings.Contains(u.Path+u.RawQuery+u.Fragment, "@") {
		shown = url.URL{Scheme: u.Scheme, Host: "xxxxx"}
	}
	return shown.Redacted()
}

func lookup(scheme string) (Opener, []string) {
	registry.Lock()
	defer registry.Unlock()
	return registry.openers[scheme], slices.Sorted(maps.Keys(registry.openers))
}
