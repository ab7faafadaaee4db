package server

import (
	"fmt"
	"time"
)

// setFull passes on whether the disk has less room than it should, and tells the operator when
// it has room again.
func (l *loop) setFull(full bool) {
	switch {
	case full && !l.full:
		l.fullSince, l.lack = time.Now(), ""
	case l.full && !full: // with the time: a text that was told within a minute is not told again
		l.notice(fmt.Errorf("the disk of %s has room again, after %s: nothing is refused for want of it", l.dir, time.Since(l.fullSince).Round(time.Millisecond)))
	}
	l.full = full
	l.node.SetFull(full)
}

// tellFull tells the operator as long as the disk has too little room.
func (l *loop) tellFull() {
	if l.full {
		if l.lack == "" || time.Since(l.lackAt) >= again { // a notice with other numbers would be another one
			l.lack, l.lackAt = l.disk.disk.Lack(), time.Now()
		}
		l.notice(fmt.Errorf("the disk of %s is nearly full: less of it is free than --reserve, or the data takes --max-data (%s); while this node leads, "+
			"what makes the state grow is refused, and releases, keepalives and reads go on: make room on the disk, or delete keys", l.dir, l.lack))
	}
}

// probeTicks is how many ticks lie between two looks at the room on the disk.
const probeTicks = 5

// probe has somebody look at the disk, which may take long.
func (l *loop) probe() {
	if l.ticks++; l.ticks < probeTicks || !l.probing.CompareAndSwap(false, true) {
		return
	}
	l.ticks = 0
	go func() {
		defer l.probing.Store(false)
		l.measure()
	}()
}

// measure looks how much room the disk has. The loop heeds it when it next has something to do. Without
// its directory the node ends.
func (l *loop) measure() {
	if err := l.disk.disk.Present(); err != nil {
		l.post(func(in *inbox) { in.failure = err })
		return
	}
	l.disk.disk.Probe()
	full := l.disk.disk.Full()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inbox.full = full
}
