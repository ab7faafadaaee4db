package gateway

import (
	"fmt"
	"io/fs"
	"math"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/node/replica"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// Limits of what one call may say.
const (
	MaxName    = 512
	maxMeta    = 4 << 10
	MaxRequest = 64 << 10
	MaxTTL     = 24 * time.Hour
	maxTimeout = math.MaxInt32 // ms
	defaultTTL = 30 * time.Second
)

// reserved is what namespaces of our own begin with.
const reserved = replica.Reserved

// maxInspect is how many bytes an Inspect may have: it may name a thousand, to be looked at
// at one revision, and could not be split.
const maxInspect = 1 << 20

// MaxRequestOf is how many bytes a request of a method, /service/method, may have.
func MaxRequestOf(method string) int {
	if method == pb.InspectService_Inspect_FullMethodName {
		return maxInspect
	}
	return MaxRequest
}

// ErrTooLarge: a request is longer than MaxRequest.
var ErrTooLarge = TooLarge(MaxRequest)

// TooLarge is the error of a request that is longer than most bytes.
func TooLarge(most int) error {
	return driver.Errorf("call", "", driver.ErrExhausted, "the request has more than %d bytes: split it", most)
}

// MaxParts is how many parts a request may have: messages in it and elements of lists, in JSON
// objects. Decoded, each takes a hundred times as many bytes as it has. No request of 64 KiB
// that says something has so many: a part of eight bytes says nothing.
const MaxParts = 8192

// ErrParts: a request has more than MaxParts.
var ErrParts error = driver.Errorf("call", "", fs.ErrInvalid, "the request has more than %d parts: split it", MaxParts)

// CheckJSON refuses JSON with too many objects, before they are decoded.
func CheckJSON(text []byte) error {
	if len(text) <= 2*MaxParts || objects(text) <= MaxParts {
		return nil
	}
	return ErrParts
}

// objects counts those that begin in JSON; in text that is none it may count others.
func objects(text []byte) (n int) {
	quoted := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case c == '{' && !quoted:
			n++
		}
	}
	return n
}

// Invalid refuses a request that makes no sense.
func Invalid(name, format string, args ...any) error {
	return driver.Errorf("", Clip(name), fs.ErrInvalid, format, args...)
}

func checkNamespace(ns string) error {
	if strings.HasPrefix(ns, reserved) {
		return Invalid("", "namespaces that begin with %q are the server's own: choose another", reserved)
	}
	// Room for the server's own namespace beside it.
	if bad := badName(ns, MaxName-len(registers)); bad != "" {
		return Invalid("", "namespace: %s", bad)
	}
	return nil
}

// CheckName refuses a name before anything is done with it.
func CheckName(name string) error {
	if bad := badName(name, MaxName); bad != "" {
		return Invalid("", "name: %s", bad)
	}
	return nil
}

func badName(name string, limit int) string {
	switch {
	case name == "":
		return fmt.Sprintf("it is empty: give 1 to %d bytes", limit)
	case len(name) > limit:
		return fmt.Sprintf("it has %d bytes: at most %d are allowed", len(name), limit)
	case !utf8.ValidString(name):
		return "it is not valid UTF-8"
	case strings.ContainsFunc(name, unicode.IsControl):
		return fmt.Sprintf("%q has a control character", name)
	}
	return ""
}

// checkOwner refuses an owner text that could not be shown everywhere; none is one.
func checkOwner(owner string) error {
	if owner == "" {
		return nil
	}
	if bad := badName(owner, MaxName); bad != "" {
		return Invalid("", "owner: %s", bad)
	}
	return nil
}

// CheckLimit refuses how much of a long answer is wanted; 0 is as much as a page has.
func CheckLimit(n int64) error {
	if n < 0 {
		return Invalid("", "a limit of %d makes no sense: give 1 or more, or 0 for as much as a page has", n)
	}
	return nil
}

// CheckSpan turns milliseconds into a duration.
func CheckSpan(what string, ms int64, limit time.Duration) (time.Duration, error) {
	if ms < 0 || ms > limit.Milliseconds() {
		return 0, Invalid("", "%s of %d ms is out of range: give 0 to %d", what, ms, limit.Milliseconds())
	}
	return time.Duration(ms) * time.Millisecond, nil
}

// CheckRenewal turns the TTL of a renewal in milliseconds into a duration; 0 stays 0, for that of the
// lease. One below the least is raised to that: it may have been allowed when the lease was opened, before
// the node got others.
func (g *Gateway) CheckRenewal(ms int64) (time.Duration, error) {
	ttl, err := CheckSpan("a ttl_ms", ms, MaxTTL)
	if ttl > 0 {
		ttl = max(ttl, g.s.MinTTL())
	}
	return ttl, err
}

// checkTTL turns a TTL in milliseconds into a duration, 0 into the default.
func checkTTL(ms int64, least time.Duration) (time.Duration, error) {
	if ms == 0 {
		return max(defaultTTL, least), nil
	}
	if ms < least.Milliseconds() || ms > MaxTTL.Milliseconds() {
		return 0, Invalid("", "a time to live of %d ms is out of range: give %d to %d", ms, least.Milliseconds(), MaxTTL.Milliseconds())
	}
	return time.Duration(ms) * time.Millisecond, nil
}

func checkBytes(what string, b []byte) error {
	if len(b) > maxMeta {
		return Invalid("", "%s has %d bytes: at most %d are allowed", what, len(b), maxMeta)
	}
	return nil
}
