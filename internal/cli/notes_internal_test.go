package cli

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"
)

// What a node or the keeper of a hold tells waits for no reader; the newest comes in the end.
func TestNotes_WaitForNobody(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	a := &app{errOut: write}
	told := make(chan struct{})
	go func() {
		defer close(told)
		for range 1000 {
			a.warn(errors.New(strings.Repeat("x", 1000)))
		}
		a.note("the last")
	}()
	select {
	case <-told:
	case <-time.After(30 * time.Second):
		t.Error("it waits for a reader")
	}
	go func() {
		<-told
		a.told()
		write.Close()
	}()
	said, err := io.ReadAll(read)
	if err != nil || !strings.HasSuffix(string(said), "\nholdfast: the last\n") {
		t.Errorf("%d bytes come in the end, without the last: %v", len(said), err)
	}
	read.Close()
}
