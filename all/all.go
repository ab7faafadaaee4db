// Package all imports every backend, so that holdfast.Open knows every URL:
//
//	import _ "github.com/holdfast-io/holdfast/all"
//
// A program that needs one backend imports that package alone.
package all

import (
	_ "github.com/holdfast-io/holdfast/filehold"  // file:
	_ "github.com/holdfast-io/holdfast/memhold"   // mem:
	_ "github.com/holdfast-io/holdfast/natshold"  // nats:
	_ "github.com/holdfast-io/holdfast/pghold"    // postgres:, postgresql:
	_ "github.com/holdfast-io/holdfast/redishold" // redis:, rediss:, redlock:
	_ "github.com/holdfast-io/holdfast/remote"    // holdfast:, holdfasts:
	_ "github.com/holdfast-io/holdfast/server"    // embed:
)
