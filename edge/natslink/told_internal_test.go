package natslink

import (
	"errors"
	"fmt"
	"slices"
	"testing"
)

// A cause is told once, as long as something is wrong: a server that is away for an hour fails thousands of attempts.
func TestReport_TellsACauseOnce(t *testing.T) {
	var told []string
	l := newLink(Options{OnError: func(err error) { told = append(told, err.Error()) }})
	for port := range 3 {
		l.report(errCut)
		l.report(fmt.Errorf("read tcp 127.0.0.1:%d->127.0.0.1:4222: i/o timeout", 40000+port*77))
		if l.err == nil {
			t.Error("nothing is wrong")
		}
	}
	l.report(nil)
	l.report(nil)
	if l.err != nil {
		t.Error(l.err)
	}
	other := errors.New("the stream is gone")
	for range 2 {
		l.report(errCut)
		l.report(other)
	}
	want := []string{errCut.Error(), "read tcp 127.0.0.1:40000->127.0.0.1:4222: i/o timeout", errCut.Error(), other.Error()}
	if !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}
