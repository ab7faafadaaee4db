package holdfast_test

import (
	"context"
	sqldriver "database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

// What a driver returns gets operation and name once, and loses nothing.
func TestErrors_FilledOnce(t *testing.T) {
	broken := errors.New("broken pipe")
	tests := map[string]struct {
		from error
		text string
		is   error
	}{
		"bare":            {broken, `holdfast: acquire "a": broken pipe`, broken},
		"kind":            {driver.ErrConflict, `holdfast: acquire "a": conflict`, driver.ErrConflict},
		"canceled":        {context.Canceled, `holdfast: acquire "a": context canceled`, context.Canceled},
		"deadline":        {fmt.Errorf("read: %w", context.DeadlineExceeded), `holdfast: acquire "a": context deadline exceeded: read`, context.DeadlineExceeded},
		"permission":      {fs.ErrPermission, `holdfast: acquire "a": permission denied`, fs.ErrPermission},
		"our own":         {&driver.Error{Kind: driver.ErrUnavailable, Err: broken, RetryAfter: 1500 * time.Millisecond}, `holdfast: acquire "a": unavailable: broken pipe: try again in 1.5s`, broken},
		"our own, named":  {&driver.Error{Op: "lock", Name: "b", Kind: driver.ErrHeld}, `holdfast: lock "b": held`, driver.ErrHeld},
		"our own, by op":  {&driver.Error{Op: "lock", Kind: driver.ErrHeld}, `holdfast: lock "a": held`, driver.ErrHeld},
		"our own, inside": {fmt.Errorf("node 3: %w", &driver.Error{Op: "lock", Kind: driver.ErrHeld}), `node 3: holdfast: lock: held`, driver.ErrHeld},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s, toy := open(t)
			toy.onAcquire = func(context.Context, *driver.Request) error { return tt.from }
			_, err := s.Mutex("a").Acquire(t.Context())
			if err.Error() != tt.text {
				t.Errorf("got  %s\nwant %s", err, tt.text)
			}
			wantErr(t, err, tt.is)
		})
	}
}

// A driver may return the same error to many: it is never written to.
func TestErrors_NotShared(t *testing.T) {
	s, toy := open(t)
	same := &driver.Error{Kind: driver.ErrHeld}
	toy.onAcquire = func(context.Context, *driver.Request) error { return same }
	_, errA := s.Mutex("a").Acquire(t.Context())
	_, errB := s.Mutex("b").Acquire(t.Context())
	if same.Name != "" || errA.Error() == errB.Error() {
		t.Errorf("%v, %v, %+v", errA, errB, same)
	}
}

func TestNotDone(t *testing.T) {
	tests := map[string]struct {
		err  error
		want bool
	}{
		"nil":       {nil, false},
		"foreign":   {errors.New("x"), false},
		"unknown":   {&holdfast.Error{Kind: holdfast.ErrUnavailable}, false},
		"not done":  {&holdfast.Error{Outcome: driver.NotDone}, true},
		"done":      {&holdfast.Error{Outcome: driver.Done}, false},
		"not done'": {fmt.Errorf("x: %w", &holdfast.Error{Outcome: driver.NotDone}), true},
	}
	for name, tt := range tests {
		if got := holdfast.NotDone(tt.err); got != tt.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	busy := fmt.Errorf("x: %w", &holdfast.Error{Kind: holdfast.ErrUnavailable, RetryAfter: time.Second})
	if holdfast.RetryAfter(busy) != time.Second || holdfast.RetryAfter(errors.New("x")) != 0 || holdfast.RetryAfter(nil) != 0 {
		t.Error("RetryAfter does not tell what the error says")
	}
}

// Scenario 26: every token that a Hold can have goes through database/sql and
// JSON unharmed.
func TestToken_SQLAndJSON(t *testing.T) {
	for _, token := range []holdfast.Token{1, 1<<53 - 1} {
		v, err := sqldriver.DefaultParameterConverter.ConvertValue(token)
		if err != nil || v != int64(token) {
			t.Errorf("SQL took %d as %v, %v", token, v, err)
		}
		b := marshal(t, token)
		var f float64
		if err := json.Unmarshal(b, &f); err != nil || holdfast.Token(f) != token {
			t.Errorf("a reader with floats took %s as %v", b, f)
		}
	}
}

func marshal(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
