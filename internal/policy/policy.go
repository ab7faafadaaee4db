// Package policy refuses reclaim policies of sessions on backends that keep none.
package policy

import (
	"errors"

	"github.com/holdfast-io/holdfast/driver"
)

// None refuses a session with a policy, for backends without [driver.FeatureReclaim]: taken in
// silence, its holder would count on a name that others get at its deadline.
func None(spec *driver.Spec) error {
	if spec.Policy == driver.AtDeadline {
		return nil
	}
	return driver.Errorf("", "", errors.ErrUnsupported, "the session asks for a reclaim policy, and this backend has no %q: "+
		"leave Spec.Policy out, or use mem:, embed: or holdfast:", driver.FeatureReclaim)
}
