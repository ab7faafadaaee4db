package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// The bounds of what waits for a reader.
const (
	maxOutput = 256 << 10 // bytes of output; a command that runs waits then, as at any pipe
	maxLate   = 1 << 20   // bytes beyond it of commands that have ended; more is dropped
	maxDrawn  = 64        // trees and notes; the oldest is dropped
)

// screen writes what a run shows and what its commands say, in order, by a goroutine of its
// own: a reader that stalls holds up neither the run nor the end of a command.
type screen struct {
	out, err io.Writer
	terminal bool
	drawn    int  // lines of the last tree on the terminal
	cut      bool // the last output has no end of a line

	mu     sync.Mutex
	queue  []piece
	size   int           // bytes of output in the queue
	more   chan struct{} // the queue has something, or the end has come
	room   chan struct{} // closed when something was written, and made anew
	over   bool
	closed chan struct{} // everything is written
}

// piece is something to write: output of a command, a tree in place of the last, or a note.
type piece struct {
	text []byte
	kind pieceKind
}

type pieceKind int

const (
	isOutput pieceKind = iota
	isTree
	isNote
)

// newScreen is a screen that write has yet to be begun for.
func newScreen(out, err io.Writer, terminal bool) *screen {
	return &screen{out: out, err: err, terminal: terminal, more: make(chan struct{}, 1), room: make(chan struct{}), closed: make(chan struct{})}
}

// output queues what a command says. It waits for room until the command has ended.
func (s *screen) output(b []byte, ended <-chan struct{}) {
	for {
		s.mu.Lock()
		size, room := s.size, s.room
		late := isClosed(ended)
		if size < maxOutput || late && size < maxOutput+maxLate {
			s.add(piece{bytes.Clone(b), isOutput})
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		if late {
			return
		}
		select {
		case <-room:
		case <-ended:
		}
	}
}

// show queues a tree or a note; it does not wait.
func (s *screen) show(text []byte, kind pieceKind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, p := range s.queue {
		if p.kind != isOutput {
			n++
		}
	}
	if n >= maxDrawn {
		i := slices.IndexFunc(s.queue, func(p piece) bool { return p.kind != isOutput })
		s.queue = slices.Delete(s.queue, i, i+1)
	}
	s.add(piece{text, kind})
}

// add queues a piece; s is locked.
func (s *screen) add(p piece) {
	s.queue = append(s.queue, p)
	if p.kind == isOutput {
		s.size += len(p.text)
	}
	s.wake()
}

func (s *screen) wake() {
	select {
	case s.more <- struct{}{}:
	default: // it is about to look
	}
}

// write writes until everything is written and the end has come.
func (s *screen) write() {
	defer close(s.closed)
	for range s.more {
		for p, ok := s.next(); ok; p, ok = s.next() {
			s.put(p)
		}
		s.mu.Lock()
		ends := s.over && len(s.queue) == 0
		s.mu.Unlock()
		if ends {
			return
		}
	}
}

func (s *screen) next() (p piece, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		return p, false
	}
	p, s.queue = s.queue[0], s.queue[1:]
	if p.kind == isOutput {
		s.size -= len(p.text)
		close(s.room)
		s.room = make(chan struct{})
	}
	return p, true
}

// put writes a piece; a reader that has gone needs no more.
func (s *screen) put(p piece) {
	if p.kind != isTree {
		s.drawn = 0
	}
	if p.kind == isOutput {
		_, _ = s.out.Write(p.text)
		s.cut = !bytes.HasSuffix(p.text, []byte("\n"))
		return
	}
	if s.terminal && s.drawn > 0 {
		fmt.Fprintf(s.err, "\x1b[%dA\x1b[J", s.drawn)
	}
	_, _ = s.err.Write(p.text)
	if p.kind == isTree {
		s.drawn = strings.Count(string(p.text), "\n")
	}
}

// end returns when everything is written, or with the error of the first signal: a program
// at its end waits for its reader as any other does.
func (s *screen) end(sigs <-chan os.Signal) error {
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
	s.wake()
	for {
		select {
		case <-s.closed:
			return nil
		case sig := <-sigs:
			if !slices.Contains(forCommands, sig) {
				return signalled{sig.(syscall.Signal)}
			}
		}
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
