package client

import "time"

// Alarm calls Ring at some time, without a goroutine until then. It is set for
// the earliest time asked for; if that turns out to be too early, the ring
// sets it anew. That spares a timer's move on nearly every call.
type Alarm struct {
	Ring  func()
	timer *time.Timer
	at    int64
	armed bool
}

// Set asks for a ring at the time at, a time of the mux.
func (a *Alarm) Set(now, at int64) {
	if a.armed && a.at <= at || at == never {
		return
	}
	a.at, a.armed = at, true
	d := time.Duration(max(at-now, 0))
	if a.timer == nil {
		a.timer = time.AfterFunc(d, a.Ring)
		return
	}
	a.timer.Reset(d)
}

// Rang notes that it has rung.
func (a *Alarm) Rang() { a.armed = false }

// Stop forgets what was asked for.
func (a *Alarm) Stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
	a.armed = false
}
