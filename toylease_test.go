package holdfast_test

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/holdfast-io/holdfast/driver"
)

// share is the lease of a spec; lock held.
func (t *toy) share(s driver.Spec) *toyLease {
	if l := t.shared[s]; l != nil && l.Err() == nil {
		return l
	}
	t.shared[s] = t.newLease(s)
	return t.shared[s]
}

func (t *toy) newLease(s driver.Spec) *toyLease {
	t.rev++
	id := driver.LeaseID{byte(t.rev), byte(t.rev >> 8)}
	l := &toyLease{Lease: driver.NewLease(id, s), ttl: s.TTL}
	t.leases[id] = l
	l.Extend(driver.Now(), s.TTL)
	l.end = time.AfterFunc(s.TTL, func() { t.expire(l) })
	if !s.Manual {
		l.renew = time.AfterFunc(s.TTL/3, func() { t.keep(l) })
	}
	return l
}

func (t *toy) keep(l *toyLease) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l.Err() != nil || t.leases[l.ID] == nil {
		return
	}
	if !t.stalled {
		l.Extend(driver.Now(), l.ttl)
		l.end.Reset(l.ttl)
	}
	l.renew.Reset(l.ttl / 3)
}

// expire is the engine's end of a lease.
func (t *toy) expire(l *toyLease) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.leases, l.ID)
	for _, n := range slices.Collect(maps.Values(t.names)) {
		for _, c := range slices.Concat(n.holders, n.queue) {
			if c.lease == l {
				t.drop(c)
			}
		}
	}
	for k, id := range t.keyLease {
		if id == l.ID {
			delete(t.keys, k)
			delete(t.keyLease, k)
		}
	}
}

func (t *toy) OpenLease(_ context.Context, s driver.Spec) (*driver.Lease, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls["open lease"]++
	return t.newLease(s).Lease, nil
}

func (t *toy) KeepLease(_ context.Context, l *driver.Lease, ttl time.Duration) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls["keep lease"]++
	own := t.leases[l.ID]
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

func (t *toy) EndLease(_ context.Context, l *driver.Lease) error {
	t.call("end lease")
	if f := hook(t, &t.onEnd); f != nil {
		f()
	}
	t.mu.Lock()
	own := t.leases[l.ID]
	t.mu.Unlock()
	if own == nil {
		return driver.ErrLost
	}
	own.stop()
	t.expire(own)
	return nil
}

func (l *toyLease) stop() {
	l.end.Stop()
	if l.renew != nil {
		l.renew.Stop()
	}
}

func (t *toy) LeaseInfo(_ context.Context, r *driver.LeaseInfoRequest) (driver.LeaseInfo, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	id := r.ID
	l := t.leases[id]
	if l == nil {
		return driver.LeaseInfo{}, driver.ErrLost
	}
	info := driver.LeaseInfo{ID: id, TTL: l.ttl, ExpiresIn: l.ttl}
	for name, n := range t.names {
		if slices.ContainsFunc(n.holders, func(c *toyClaim) bool { return c.lease == l }) {
			info.Names = append(info.Names, name)
		}
	}
	for k, of := range t.keyLease {
		if of == id {
			info.Keys = append(info.Keys, k)
		}
	}
	t.calls["lease info"]++
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
