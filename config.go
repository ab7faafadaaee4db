package holdfast

import (
	"fmt"
	"os"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/owner"
)

// The range of TTLs, before a backend narrows it.
const (
	minTTL     = time.Second
	maxTTL     = 24 * time.Hour
	defaultTTL = 30 * time.Second
)

const (
	// minSpan and maxSpan bound every other duration: below, somebody forgot
	// the unit; above, sums of times would overflow.
	minSpan = time.Millisecond
	maxSpan = 70 * 365 * 24 * time.Hour // what every backend takes: the core takes 2⁶¹ ns
	// minMaxHold leaves something to the holder: its own end is two percent and 50 ms before the backend's.
	minMaxHold = 100 * time.Millisecond

	maxMeta = 4 << 10
)

// config is what HoldOptions say. It is never changed once made, so that all
// that is made from one Space shares it.
type config struct {
	spec                    driver.Spec
	ttlSet, graceSet        bool
	maxHold, minHold, delay time.Duration
	reentrant               bool
	onWait                  func(position int)
	under                   *Session
	err                     error // what is wrong with it; told by every call
}

// setup is what Options say.
type setup struct {
	config  config
	require []Feature
	hooks   []Hooks
}

// putting is what PutOptions say.
type putting struct {
	session   *Session
	expire    time.Duration
	expireSet bool
	err       error
}

// defaultOwner is host/pid/program.
var defaultOwner = sync.OnceValue(func() string { return owner.Of(os.Args[0]) })

// with returns c changed by opts, checked against what the backend allows.
func (c *config) with(opts []HoldOption, r *spaceState) *config {
	if len(opts) == 0 {
		return c
	}
	changed := *c
	for o := range given(opts) {
		o.hold(&changed)
	}
	changed.settle(r)
	return &changed
}

// settle fills in what was left open and notes the first mistake.
func (c *config) settle(r *spaceState) {
	if !c.ttlSet {
		low, high := ttlRange(&r.info)
		c.spec.TTL = min(max(defaultTTL, low), high)
	}
	if c.err == nil {
		c.err = c.check(r)
	}
}

func (c *config) check(r *spaceState) error {
	if err := checkTTL(c.spec.TTL, &r.info); err != nil {
		return err
	}
	if err := checkText("owner", c.spec.Owner); err != nil {
		return err
	}
	if len(c.spec.Owner) > defaultMaxName {
		return invalid("the owner has %d bytes; at most %d are allowed", len(c.spec.Owner), defaultMaxName)
	}
	if len(c.spec.Meta) > maxMeta {
		return invalid("the metadata has %d bytes; at most %d are allowed", len(c.spec.Meta), maxMeta)
	}
	if !utf8.ValidString(c.spec.Meta) {
		return invalid("the metadata is not UTF-8; write bytes as text, such as base64")
	}
	return firstError(c.checkSpans(r), c.checkSession(r))
}

func (c *config) checkSpans(r *spaceState) error {
	return firstError(
		checkSpan("MaxHold", c.maxHold, minMaxHold, driver.FeatureMaxHold, r),
		checkSpan("MinHold", c.minHold, minSpan, driver.FeatureMinHold, r),
		checkSpan("Delay", c.delay, minSpan, driver.FeatureDelay, r))
}

func (c *config) checkSession(r *spaceState) error {
	if c.spec.Policy != driver.AtDeadline {
		if err := firstError(r.lacks(driver.FeatureReclaim), c.checkGrace(r)); err != nil {
			return err
		}
	}
	switch {
	case c.under != nil && c.under.r != r:
		return invalid("Under: the session is of another Space")
	case c.under != nil && c.spec.Manual:
		return invalid("ManualRenew: a hold under a session is renewed with it; use Session.Keep")
	case c.under != nil && c.spec.Policy != driver.AtDeadline && c.spec.Policy != c.under.session.Spec.Policy:
		return invalid("ReclaimOnDemand and ReclaimNever: a hold under a session has its policy; give it to Space.Session")
	case c.spec.Manual:
		return firstError(r.lacks(driver.FeatureSession), r.lacksTTL())
	}
	return nil
}

// lacksTTL refuses what makes sense only where a session ends by its TTL.
func (r *spaceState) lacksTTL() error {
	if r.info.MinTTL > 0 || r.info.MaxTTL > 0 {
		return nil
	}
	return unsupported("ManualRenew: on %s: a session has no TTL after which it would end, but lives as long as its connection or process; leave ManualRenew out", r.info.Scheme)
}

// checkGrace lets a grace of 0 be: reclaim as soon as the TTL has passed.
func (c *config) checkGrace(r *spaceState) error {
	grace := c.spec.Grace
	if !c.graceSet || grace == 0 {
		return nil
	}
	if _, high := ttlRange(&r.info); grace < minSpan || grace > high {
		return invalid("ReclaimOnDemand(%s) is out of range: 0, or %s to %s%s", grace, minSpan, high, unitHint("ReclaimOnDemand", grace))
	}
	return nil
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// ttlRange is what the backend takes. One without TTLs takes them all and
// ignores them.
func ttlRange(i *Info) (low, high time.Duration) {
	low, high = max(minTTL, i.MinTTL), maxTTL
	if i.MaxTTL > 0 {
		high = min(high, i.MaxTTL)
	}
	return low, high
}

func checkTTL(ttl time.Duration, i *Info) error {
	low, high := ttlRange(i)
	if ttl < low || ttl > high {
		return invalid("TTL(%s) is out of range: %s to %s%s", ttl, low, high, unitHint("TTL", ttl))
	}
	return nil
}

// checkSpan takes 0 as "not wanted"; anything else needs the feature.
func checkSpan(what string, d, least time.Duration, f Feature, r *spaceState) error {
	if d == 0 {
		return nil
	}
	if err := checkAtLeast(what, d, least); err != nil {
		return err
	}
	return r.lacks(f)
}

func checkDuration(what string, d time.Duration) error { return checkAtLeast(what, d, minSpan) }

func checkAtLeast(what string, d, least time.Duration) error {
	if d < least || d > maxSpan {
		return invalid("%s(%s) is out of range: %s to %s%s", what, d, least, maxSpan, unitHint(what, d))
	}
	return nil
}

// unitHint recognises a number that was meant as seconds.
func unitHint(what string, d time.Duration) string {
	if d <= 0 || d >= time.Microsecond*100 {
		return ""
	}
	return fmt.Sprintf("; %d seconds are %s(%d*time.Second)", d, what, d)
}
