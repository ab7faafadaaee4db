package causes_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/holdfast-io/holdfast/internal/causes"
)

func TestTold(t *testing.T) {
	var told causes.Told
	cut, full := errors.New("the connection was cut"), errors.New("full")
	at := func(port int) error { return fmt.Errorf("read tcp 127.0.0.1:%d->127.0.0.1:4222: i/o timeout", port) }
	for i, step := range []struct {
		err  error
		want bool
	}{{cut, true}, {cut, false}, {at(40000), true}, {cut, false}, {at(51234), false}, {full, true}, {full, false}} {
		if told.Fresh(step.err) != step.want {
			t.Errorf("step %d: %v is fresh: %v", i, step.err, !step.want)
		}
	}
	told.Well()
	if !told.Fresh(full) || told.Fresh(full) {
		t.Error("after all was well")
	}
}
