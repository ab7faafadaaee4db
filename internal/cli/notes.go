package cli

import (
	"bytes"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// notes are what a program tells on its standard error while it goes on with its work.
type notes struct {
	mu     sync.Mutex
	screen *screen // nil: nothing was told
}

// note tells something beside a command's output, as tell does.
func (a *app) note(text string) {
	var line bytes.Buffer
	(&printer{err: &line, json: a.json}).note(text)
	a.tell(line.Bytes())
}

// warn tells an operator something that no call returns, as tell does.
func (a *app) warn(err error) { a.tell([]byte("holdfast: " + err.Error() + "\n")) }

// tell queues a line. It does not wait: a reader that stalls, as behind ^S or a pager, must
// hold up neither the end of a command nor a node. Of more than maxDrawn lines that nobody
// reads the oldest are dropped.
func (a *app) tell(line []byte) {
	a.notes.mu.Lock()
	defer a.notes.mu.Unlock()
	if a.notes.screen == nil {
		a.notes.screen = newScreen(a.out, a.errOut, false)
		go a.notes.screen.write()
	}
	a.notes.screen.show(line, isNote)
}

// told returns when everything is written: a program at its end waits for its reader as any
// other does.
func (a *app) told() {
	a.notes.mu.Lock()
	s := a.notes.screen
	a.notes.screen = nil
	a.notes.mu.Unlock()
	if s != nil {
		_ = s.end(nil)
	}
}

// outliveReaders has the program go on, to its end, when a reader of its output leaves, as head
// does: what is held has to be given back, and a node has its clients. To ignore the signal
// would have commands ignore it, too.
func (a *app) outliveReaders() {
	if a.gone == nil && !signal.Ignored(syscall.SIGPIPE) {
		a.gone = make(chan os.Signal, 1)
		signal.Notify(a.gone, syscall.SIGPIPE)
	}
}
