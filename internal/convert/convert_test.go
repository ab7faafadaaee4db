package convert_test

import (
	"context"
	"errors"
	"testing"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/convert"
	"github.com/holdfast-io/holdfast/internal/core"
)

// Every code that a caller can be refused with has a kind; the session deals
// with the others itself.
func TestEveryRefusalHasAKind(t *testing.T) {
	for code := core.CodeHeld; code <= core.CodeUnavailable; code++ {
		inside := code == core.CodeForgotten || code == core.CodeWindow
		if e := convert.Refusal(code, ""); (e.Kind == nil) != inside {
			t.Errorf("code %d has the kind %v", code, e.Kind)
		}
	}
	if e := convert.Refusal(core.CodeInvalid, "a reason"); e.Err.Error() != "a reason" {
		t.Errorf("the machine's text was lost: %v", e)
	}
}

// looks is a backend of which a name can be looked at.
type looks struct {
	driver.Base
	resources []driver.Resource
	err       error
}

func (l looks) Inspect(context.Context, *driver.InspectRequest) (driver.InspectReply, error) {
	return driver.InspectReply{Resources: l.resources}, l.err
}

// "ErrHeld if it is in use": also if it is free, or gone, when its holders are looked for.
func TestInUse(t *testing.T) {
	conflict := convert.Refusal(core.CodeConflict, "in use")
	held := driver.Resource{Kind: driver.Semaphore, Holders: []driver.Claim{{}}}
	for what, c := range map[string]struct {
		looks looks
		want  error
	}{
		"held":            {looks{resources: []driver.Resource{held}}, driver.ErrHeld},
		"free since":      {looks{resources: []driver.Resource{{Kind: driver.Semaphore}}}, driver.ErrHeld},
		"gone since":      {looks{}, driver.ErrHeld},
		"not to be seen":  {looks{err: driver.ErrUnavailable}, driver.ErrHeld},
		"of another kind": {looks{resources: []driver.Resource{{Kind: driver.Latch}}}, driver.ErrConflict},
	} {
		if err := convert.InUse(t.Context(), c.looks, driver.Semaphore, "s", conflict); !errors.Is(err, c.want) {
			t.Errorf("%s: a delete is answered %v", what, err)
		}
	}
}

// What is handed out shares nothing with the machine.
func TestValuesAreCopies(t *testing.T) {
	key := core.Key{Name: "k", Value: []byte("v"), Version: 1, Deadline: 30}
	kv := convert.KV(10, &key)
	key.Value[0] = 'x'
	if string(kv.Value) != "v" || kv.ExpiresIn != 20 {
		t.Errorf("got %q, which expires in %d", kv.Value, kv.ExpiresIn)
	}
	info := []core.ClaimInfo{{Name: "n", Value: []byte("v"), Since: 5, Ends: 15}}
	claims := convert.Claims(10, info)
	info[0].Value[0] = 'x'
	if string(claims[0].Value) != "v" || claims[0].Held != 5 || claims[0].ExpiresIn != 5 {
		t.Errorf("got %+v", claims[0])
	}
}
