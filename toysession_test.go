package holdfast_test

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/holdfast-io/holdfast/driver"
)

// share is the session of a spec; lock held.
func (t *toy) share(s driver.Spec) *toySession {
	if l := t.shared[s]; l != nil && l.Err() == nil {
		return l
	}
	t.shared[s] = t.newSession(s)
	return t.shared[s]
}

func (t *toy) newSession(s driver.Spec) *toySession {
	t.rev++
	id := driver.SessionID{byte(t.rev), byte(t.rev >> 8)}
	l := &toySession{Session: driver.NewSession(id, s), ttl: s.TTL}
	t.sessions[id] = l
	l.Extend(driver.Now(), s.TTL)
	l.end = time.AfterFunc(s.TTL, func() { t.expire(l) })
	if !s.Manual {
		l.renew = time.AfterFunc(s.TTL/3, func() { t.keep(l) })
	}
	return l
}

func (t *toy) keep(l *toySession) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l.Err() != nil || t.sessions[l.ID] == nil {
		return
	}
	if !t.stalled {
		l.Extend(driver.Now(), l.ttl)
		l.end.Reset(l.ttl)
	}
	l.renew.Reset(l.ttl / 3)
}

// expire is the engine's end of a session.
func (t *toy) expire(l *toySession) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.sessions, l.ID)
	for _, n := range slices.Collect(maps.Values(t.names)) {
		for _, c := range slices.Concat(n.holders, n.queue) {
			if c.session == l {
				t.drop(c)
			}
		}
	}
	for k, id := range t.keySession {
		if id == l.ID {
			delete(t.keys, k)
			delete(t.keySession, k)
		}
	}
}

func (t *toy) OpenSession(_ context.Context, s driver.Spec) (*driver.Session, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls["open session"]++
	return t.newSession(s).Session, nil
}

func (t *toy) KeepSession(_ context.Context, l *driver.Session, ttl time.Duration) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls["keep session"]++
	own := t.sessions[l.ID]
	if own == nil || t.stalled {
		return driver.ErrLost
	}
	if ttl == 0 {
		ttl = own.ttl
	}
	own.Extend(driver.Now(), ttl)
	own.end.Reset(ttl)
	return l.Err()
}

func (t *toy) EndSession(_ context.Context, l *driver.Session) error {
	t.call("end session")
	if f := hook(t, &t.onEnd); f != nil {
		f()
	}
	t.mu.Lock()
	own := t.sessions[l.ID]
	t.mu.Unlock()
	if own == nil {
		return driver.ErrLost
	}
	own.stop()
	t.expire(own)
	return nil
}

func (l *toySession) stop() {
	l.end.Stop()
	if l.renew != nil {
		l.renew.Stop()
	}
}

func (t *toy) SessionInfo(_ context.Context, r *driver.SessionInfoRequest) (driver.SessionInfo, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	id := r.ID
	l := t.sessions[id]
	if l == nil {
		return driver.SessionInfo{}, driver.ErrLost
	}
	info := driver.SessionInfo{ID: id, TTL: l.ttl, ExpiresIn: l.ttl}
	for name, n := range t.names {
		if slices.ContainsFunc(n.holders, func(c *toyClaim) bool { return c.session == l }) {
			info.Names = append(info.Names, name)
		}
	}
	for k, of := range t.keySession {
		if of == id {
			info.Keys = append(info.Keys, k)
		}
	}
	t.calls["session info"]++
	if from, _ := strconv.Atoi(r.After); t.answer > 0 {
		slices.Sort(info.Keys)
		end := min(from+t.answer, len(info.Keys))
		if end < len(info.Keys) {
			info.Next = strconv.Itoa(end)
		}
		info.Keys = info.Keys[from:end]
	}
	return info, nil
}

// manualSessions counts the sessions that nobody renews.
func (t *toy) manualSessions() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.sessions {
		if l.Spec.Manual {
			n++
		}
	}
	return n
}
