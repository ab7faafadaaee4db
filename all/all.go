// Package all imports every backend, so that holdfast.Open knows every URL:
//
//	import _ "github.com/holdfast-io/holdfast/all"
//
// A program that needs one backend imports that package alone.
package all

import (
	_ "github.com/holdfast-io/holdfast/memhold" // mem:
)
