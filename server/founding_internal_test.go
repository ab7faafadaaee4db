package server

import (
	"fmt"
	"testing"

	"github.com/holdfast-io/holdfast/internal/node/transport"
)

// A peer may refuse this node as soon as it listens. The node asks for another number
// when it is complete, not before.
func TestRefusedBeforeTheStartIsComplete(t *testing.T) {
	l := newLoop(nil, 1, 0)
	l.founding.empty.Store(true)
	s := &Server{loop: l}
	close(l.stopped)
	s.refused(l)(2, fmt.Errorf("%w: another directory", transport.ErrStranger))
	l.founding.wg.Wait()
	if in, _ := l.take(); len(in.todo) != 1 || !l.founding.asking.Load() {
		t.Errorf("the loop has %d things to do, and the node asks: %v", len(in.todo), l.founding.asking.Load())
	}
}
