package memhold

import "time"

// alarm calls ring at some time, without a goroutine until then. It is set for
// the earliest time asked for; if that turns out to be too early, whoever rings
// sets it anew. That spares a timer's move on nearly every call.
type alarm struct {
	ring  func()
	timer *time.Timer
	at    int64
	armed bool
}

// set asks for a ring at the time at, a time of the store.
func (a *alarm) set(now, at int64) {
	if a.armed && a.at <= at || at == never {
		return
	}
	a.at, a.armed = at, true
	d := time.Duration(max(at-now, 0))
	if a.timer == nil {
		a.timer = time.AfterFunc(d, a.ring)
		return
	}
	a.timer.Reset(d)
}

// rang notes that it has rung.
func (a *alarm) rang() { a.armed = false }

func (a *alarm) stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
	a.armed = false
}
