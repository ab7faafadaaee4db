package redishold

// places are the names that a session's list on the server has: names that it
// may hold the short way. A name stays there when its hold is given back, so that
// a client that takes the same names again and again does not write the list each time.
// Guarded by the client's lock.
type places map[string]*queueTicket

type queueTicket struct {
	name    string
	uses    int  // holds, and requests under way
	listed  bool // the server has it for certain
	leaving bool // it is being struck for another
}

// maxPlaces is about how many holds a session has that are not in the server's
// index of names: a call that asks for that index has them put there.
const maxPlaces = 256

// take uses the place of a name. If the server may not have it in its list, one
// that nobody uses may have to be struck for it; nil: none has to. false: there
// is no room now.
func (p places) take(name string) (at, strike *queueTicket, ok bool) {
	at = p[name]
	if at == nil {
		if len(p) >= maxPlaces {
			if strike = p.idle(); strike == nil {
				return nil, nil, false
			}
			strike.leaving = true
		}
		at = &queueTicket{name: name}
		p[name] = at
	}
	if at.leaving {
		return nil, nil, false
	}
	at.uses++
	return at, strike, true
}

// idle is a place that nobody uses.
func (p places) idle() *queueTicket {
	for _, at := range p {
		if at.uses == 0 && !at.leaving {
			return at
		}
	}
	return nil
}

// granted notes that the server has at in its list, and strike no more.
func (p places) granted(at, strike *queueTicket) {
	at.listed = true
	if strike != nil {
		delete(p, strike.name)
	}
}

// refused notes that a request was not granted the short way. unheard: nobody knows
// what became of it, so that the list may have both.
func (p places) refused(at, strike *queueTicket, unheard bool) {
	if strike != nil {
		strike.leaving = false
		strike.listed = strike.listed && !unheard
	}
	p.leave(at)
	if at.uses == 0 && !at.listed && !unheard {
		delete(p, at.name)
	}
}

// leave ends a use of a place.
func (p places) leave(at *queueTicket) { at.uses-- }
