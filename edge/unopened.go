package edge

import "sync"

// unopened are the limiters of which kept counts came before they were open.
type unopened struct {
	mu    sync.Mutex
	names map[string]bool
	more  bool // there were too many to remember
}

// maxUnopened bounds the names that are remembered.
const maxUnopened = 1000

func (u *unopened) note(name string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.names) >= maxUnopened && !u.names[name] {
		u.more = true
		return
	}
	if u.names == nil {
		u.names = map[string]bool{}
	}
	u.names[name] = true
}

// take reports that counts of the limiter may have come, and forgets it.
func (u *unopened) take(name string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	missed := u.more || u.names[name]
	delete(u.names, name)
	return missed
}
