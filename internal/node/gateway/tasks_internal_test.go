package gateway

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// Tasks that begin while earlier ones are waited for are not waited for: there may always be
// some. Nor are those waited for that take too long.
func TestTasks_Wait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w tasks
		early := w.begin()
		waited := make(chan struct{})
		go func() { w.wait(t.Context()); close(waited) }()
		synctest.Wait()
		late := w.begin()
		select {
		case <-waited:
			t.Error("the task of before was not waited for")
		default:
		}
		early()
		<-waited
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if w.wait(ctx); time.Since(began) != time.Second {
			t.Errorf("a task that does not end was waited for for %s", time.Since(began))
		}
		late()
		w.wait(t.Context())
	})
}
