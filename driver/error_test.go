package driver_test

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/driver"
)

func TestError_Text(t *testing.T) {
	broken := errors.New("broken pipe")
	holder := driver.Claim{Owner: "node-7", Token: 42, Held: 1500*time.Millisecond + 300}
	tests := map[string]struct {
		err  *driver.Error
		want string
	}{
		"operation":     {&driver.Error{Op: "ping"}, `holdfast: ping`},
		"kind only":     {&driver.Error{Kind: driver.ErrLost}, `holdfast: lost`},
		"name only":     {&driver.Error{Name: "a", Kind: driver.ErrLost}, `holdfast: "a": lost`},
		"cause":         {&driver.Error{Op: "ping", Err: broken}, `holdfast: ping: broken pipe`},
		"kind":          {&driver.Error{Op: "acquire", Name: "a b", Kind: driver.ErrLost}, `holdfast: acquire "a b": lost`},
		"kind as cause": {&driver.Error{Op: "acquire", Name: "a", Kind: driver.ErrLost, Err: driver.ErrLost}, `holdfast: acquire "a": lost`},
		"all":           {&driver.Error{Op: "acquire", Name: "a", Kind: driver.ErrUnavailable, Err: broken, RetryAfter: 1500 * time.Millisecond}, `holdfast: acquire "a": unavailable: broken pipe: try again in 1.5s`},
		"held":          {&driver.Error{Op: "acquire", Name: "a", Kind: driver.ErrHeld}, `holdfast: acquire "a": held`},
		"held by":       {&driver.Error{Op: "acquire", Name: "a", Kind: driver.ErrHeld, Holders: []driver.Claim{holder}}, `holdfast: acquire "a": held by node-7 (token 42, for 1.5s)`},
		"held by many":  {&driver.Error{Op: "acquire", Name: "a", Kind: driver.ErrHeld, Holders: []driver.Claim{{Token: 1}, holder, holder}, Waiting: 4}, `holdfast: acquire "a": held by somebody (token 1, for 0s) and 2 more, 4 waiting`},
		"kind again":    {&driver.Error{Op: "set rate", Name: "a", Kind: driver.ErrInvalid, Err: fmt.Errorf("limit: the count 0: %w", fs.ErrInvalid)}, `holdfast: set rate "a": invalid argument: limit: the count 0`},
		"other kind":    {&driver.Error{Op: "set rate", Name: "a", Kind: driver.ErrUnavailable, Err: fmt.Errorf("dial: %w", fs.ErrInvalid)}, `holdfast: set rate "a": unavailable: dial: invalid argument`},
		"refusal":       {driver.Errorf("open", "x", fs.ErrInvalid, "no %s", "host"), `holdfast: open "x": invalid argument: no host`},
	}
	for name, tt := range tests {
		if got := tt.err.Error(); got != tt.want {
			t.Errorf("%s:\ngot  %s\nwant %s", name, got, tt.want)
		}
	}
}

func TestError_Is(t *testing.T) {
	broken := errors.New("broken pipe")
	err := error(&driver.Error{Kind: driver.ErrUnavailable, Err: broken})
	if !errors.Is(err, driver.ErrUnavailable) || !errors.Is(err, broken) || errors.Is(err, driver.ErrHeld) {
		t.Error("errors.Is does not see kind and cause")
	}
	if errors.Is(&driver.Error{Op: "ping"}, nil) {
		t.Error("an error without a kind is nil")
	}
	if e := driver.Errorf("", "", fs.ErrInvalid, "x: %w", broken); e.Outcome != driver.NotDone || !errors.Is(e, broken) {
		t.Errorf("a refusal is %+v", e)
	}
}

// The kinds are what travels on the wire: changing one breaks every client.
func TestKinds(t *testing.T) {
	kinds := []error{driver.ErrHeld, driver.ErrLost, driver.ErrReleased, driver.ErrConflict, driver.ErrStale, driver.ErrCompacted, driver.ErrExhausted, driver.ErrUnavailable, driver.ErrClosed}
	var texts []string
	for _, k := range kinds {
		texts = append(texts, k.Error())
	}
	if got, want := strings.Join(texts, " "), "held lost released conflict stale compacted exhausted unavailable closed"; got != want {
		t.Errorf("kinds are %s, want %s", got, want)
	}
}

// A missing name and a bad argument are told in our words, and the standard
// library's errors match them.
func TestKinds_StandardLibrary(t *testing.T) {
	for _, tt := range []struct {
		kind, ours, std error
		text            string
	}{
		{fs.ErrNotExist, driver.ErrNotFound, fs.ErrNotExist, `holdfast: get "k": not found: why`},
		{driver.ErrNotFound, driver.ErrNotFound, fs.ErrNotExist, `holdfast: get "k": not found: why`},
		{fs.ErrInvalid, driver.ErrInvalid, fs.ErrInvalid, `holdfast: get "k": invalid argument: why`},
		{driver.ErrInvalid, driver.ErrInvalid, fs.ErrInvalid, `holdfast: get "k": invalid argument: why`},
		{driver.ErrDeadlock, driver.ErrDeadlock, driver.ErrConflict, `holdfast: get "k": deadlock: why`},
	} {
		err := driver.Errorf("get", "k", tt.kind, "why")
		if !errors.Is(err, tt.ours) || !errors.Is(err, tt.std) || err.Error() != tt.text {
			t.Errorf("%v is %v: %t, is %v: %t", err, tt.ours, errors.Is(err, tt.ours), tt.std, errors.Is(err, tt.std))
		}
	}
	if errors.Is(driver.ErrNotFound, fs.ErrInvalid) || errors.Is(driver.ErrConflict, driver.ErrDeadlock) {
		t.Error("kinds match what they are not")
	}
}
