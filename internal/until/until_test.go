package until_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast/internal/until"
)

// It ends at its time, for those who look, for those who wait and for children.
func TestEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looked, waited := until.In(time.Second), until.In(time.Second)
		defer waited.Stop()
		child, cancel := context.WithCancel(waited)
		defer cancel()
		if looked.Err() != nil || waited.Err() != nil {
			t.Fatal("over before it began")
		}
		begin := time.Now()
		<-child.Done()
		if d := time.Since(begin); d != time.Second {
			t.Errorf("the child ended after %s", d)
		}
		for _, err := range []error{looked.Err(), waited.Err(), child.Err()} {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("it ended with %v", err)
			}
		}
	})
}

// Stop ends it for all that still wait.
func TestStopEndsWaiting(t *testing.T) {
	u := until.In(time.Hour)
	done := u.Done()
	u.Stop()
	<-done
}
