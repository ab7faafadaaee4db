package natshold

import (
	"context"
	"net/url"
	"time"

	"github.com/holdfast-io/holdfast/driver"
)

// For tests of the package from outside.
var (
	ToBucket   = toBucket
	FromBucket = fromBucket
)

// Newer makes a program that uses these options one of the next version.
func Newer(o *Options) *Options {
	o.version = version + 1
	return o
}

// SweepAtOnce lets a driver with these options sweep what has just been used, from a server that a busy machine may hold up.
func SweepAtOnce(o *Options) *Options {
	o.sweepAge, o.sweepSkew, o.patience = 1, 1, time.Minute
	return o
}

// OpenToSweepAtOnce is the same for a URL.
func OpenToSweepAtOnce(ctx context.Context, rawURL string) (driver.Driver, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, err
	}
	opts, addrs, err := fromURL(u)
	if err != nil {
		return nil, err
	}
	return openWith(ctx, u, *SweepAtOnce(&opts), addrs)
}
