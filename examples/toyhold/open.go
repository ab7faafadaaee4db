package toyhold

import (
	"context"
	"io/fs"
	"net/url"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/driver/onstore"
)

func init() { driver.Register("toy", open) }

// open opens toy://host:port.
func open(ctx context.Context, u *url.URL) (driver.Driver, error) {
	if u.Host == "" || u.Path != "" || u.RawQuery != "" {
		return nil, driver.Errorf("open", driver.Redacted(u), fs.ErrInvalid, "a URL of the toy is toy://host:port")
	}
	s := &store{pool{addr: u.Host}}
	if _, err := s.Get(ctx, ""); err != nil {
		return nil, driver.Errorf("open", driver.Redacted(u), driver.ErrUnavailable, "%w; see that the server runs", err)
	}
	return onstore.New(s, onstore.Options{
		Info:  driver.Info{Scheme: "toy", Features: map[driver.Feature]bool{driver.FeatureManyMachines: true}},
		Place: "toy " + u.Host,
		// Some requests carry megabytes as JSON.
		Timeout: 10 * time.Second,
		Close:   s.close,
	}), nil
}
