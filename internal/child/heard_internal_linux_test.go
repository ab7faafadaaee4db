package child

import (
	"syscall"
	"testing"
)

// That a command cannot be signalled, as one of another user, is told once.
func TestHeard(t *testing.T) {
	notes := 0
	r := &running{Command: &Command{Note: func(string) { notes++ }}}
	for _, err := range []error{nil, syscall.ESRCH, syscall.EPERM, syscall.EPERM} {
		r.heard(err)
	}
	if notes != 1 {
		t.Errorf("it was told %d times", notes)
	}
}
