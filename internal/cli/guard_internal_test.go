package cli

import (
	"testing"
	"time"
)

// Commands are run only with --commands; --shell says how, and not whether.
func TestGuarding_Commands(t *testing.T) {
	for _, c := range []struct{ commands, shell, run bool }{{false, false, false}, {false, true, false}, {true, false, true}, {true, true, true}} {
		g := guarding{commands: c.commands, shell: c.shell}
		if got := g.config(nil, time.Second); (got.Commands != nil) != c.run {
			t.Errorf("%+v: commands are run: %v", c, got.Commands != nil)
		}
	}
}
