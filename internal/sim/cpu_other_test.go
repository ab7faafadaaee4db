//go:build !unix

package sim_test

import "time"

var started = time.Now()

// cpu stands in for processor time where nothing tells it.
func cpu() time.Duration { return time.Since(started) }
