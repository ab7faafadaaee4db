package pghold

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/driver"
)

// TestPartyThatWasNotSent: a party that has not come to the server when its connection breaks comes by
// another one.
func TestPartyThatWasNotSent(t *testing.T) {
	c := quickClients(t, 2)
	free(t, takeQuickly(t, c[0], "m"))
	passed := make(chan error, 2)
	arrive := func(c *client) {
		_, err := c.Acquire(t.Context(), &driver.Request{Wants: []driver.Want{{Kind: driver.Barrier, Name: "b", Limit: 2}}, Lost: func(error) {}})
		passed <- err
	}
	l, stuck := c[0].living(), make(chan struct{})
	l.start(time.Minute, func(ctx context.Context) error {
		close(stuck)
		<-ctx.Done()
		return ctx.Err()
	})
	<-stuck
	go arrive(c[0])
	within(t, "the party does not come", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.queue) == 1
	})
	l.fail(errors.New("it broke"))
	go arrive(c[1])
	for range 2 {
		select {
		case err := <-passed:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("the barrier does not open")
		}
	}
}
