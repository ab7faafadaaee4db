package driver_test

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"github.com/holdfast-io/holdfast/driver"
)

// Base answers errors.ErrUnsupported to everything that can fail, also to what
// is added later.
func TestBase_Unsupported(t *testing.T) {
	base := reflect.ValueOf(driver.Base{})
	failing := 0
	for i := range base.NumMethod() {
		m := base.Type().Method(i)
		if m.Type.NumOut() == 0 || m.Name == "Close" || m.Name == "Info" || m.Name == "Watch" {
			continue
		}
		failing++
		if err := lastResult(base.Method(i)); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: %v", m.Name, err)
		}
	}
	if failing < 14 {
		t.Errorf("only %d methods were called", failing)
	}
	for _, err := range (driver.Base{}).Watch(context.Background(), nil) {
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("Watch: %v", err)
		}
	}
	if err := (driver.Base{}).Close(context.Background()); err != nil {
		t.Errorf("Close: %v", err)
	}
	(driver.Base{}).OnFault(nil)
	if info := (driver.Base{}).Info(); len(info.Features) != 0 {
		t.Errorf("Info declares %v", info.Features)
	}
}

// lastResult calls a method with zero arguments.
func lastResult(m reflect.Value) error {
	var args []reflect.Value
	for i := range m.Type().NumIn() {
		args = append(args, reflect.Zero(m.Type().In(i)))
	}
	out := m.Call(args)
	err, _ := out[len(out)-1].Interface().(error)
	return err
}

func TestStrings(t *testing.T) {
	if s := (&driver.Event{Kind: "lock", Verb: "acquired"}).String(); s != "lock:acquired" {
		t.Errorf("event is %q", s)
	}
	kinds := map[driver.ResourceKind]string{driver.Mutex: "mutex", driver.RWMutex: "rwmutex", driver.Semaphore: "semaphore", driver.Election: "election",
		driver.Latch: "latch", driver.Barrier: "barrier", driver.Counter: "counter", driver.Sequence: "sequence", 99: "unknown"}
	for k, want := range kinds {
		if k.String() != want {
			t.Errorf("kind %d is %q, want %q", k, k, want)
		}
	}
	if s := (driver.SessionID{0xab, 15: 1}).String(); s != "ab000000000000000000000000000001" {
		t.Errorf("session id is %q", s)
	}
}
