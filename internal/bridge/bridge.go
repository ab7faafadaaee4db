// Package bridge lets the project's own test helpers reach into a Space without
// widening the API that programs see.
package bridge

import "github.com/holdfast-io/holdfast/driver"

// Staller is what a driver implements to let package holdtest stop its
// renewals: between Stall and resume no keepalive goes out, and nothing else
// changes, so that deadlines pass as they do in a process that was stopped.
// resume may be called more than once.
type Staller interface {
	Stall() (resume func())
}

// Set by package holdfast. hold is a *holdfast.Hold, space a *holdfast.Space;
// the types are not named here since holdfast imports this package.
var (
	// Lose ends hold as if the backend had reported its loss.
	Lose func(hold any, cause error)
	// Driver is what space runs on.
	Driver func(space any) driver.Driver
)
