package redishold

// nameList is what a session's list on the server has: names that it
// may hold the short way. A name stays there when its hold is given back, so that
// a client that takes the same names again and again does not write the list each time.
// Guarded by the client's lock.
type nameList map[string]*listedName

type listedName struct {
	name    string
	uses    int  // holds, and requests under way
	listed  bool // the server has it for certain
	leaving bool // it is being struck for another
}

// maxOnList is about how many holds a session has that are not in the server's
// index of names: a call that asks for that index has them put there.
const maxOnList = 256

// take uses a name of the list. If the server may not have it in its list, one
// that nobody uses may have to be struck for it; nil: none has to. false: there
// is no room now.
func (p nameList) take(name string) (at, strike *listedName, ok bool) {
	at = p[name]
	if at == nil {
		if len(p) >= maxOnList {
			if strike = p.idle(); strike == nil {
				return nil, nil, false
			}
			strike.leaving = true
		}
		at = &listedName{name: name}
		p[name] = at
	}
	if at.leaving {
		return nil, nil, false
	}
	at.uses++
	return at, strike, true
}

// idle is a name that nobody uses.
func (p nameList) idle() *listedName {
	for _, at := range p {
		if at.uses == 0 && !at.leaving {
			return at
		}
	}
	return nil
}

// granted notes that the server has at in its list, and strike no more.
func (p nameList) granted(at, strike *listedName) {
	at.listed = true
	if strike != nil {
		delete(p, strike.name)
	}
}

// refused notes that a request was not granted the short way. unheard: nobody knows
// what became of it, so that the list may have both.
func (p nameList) refused(at, strike *listedName, unheard bool) {
	if strike != nil {
		strike.leaving = false
		strike.listed = strike.listed && !unheard
	}
	p.leave(at)
	if at.uses == 0 && !at.listed && !unheard {
		delete(p, at.name)
	}
}

// leave ends a use of a name.
func (p nameList) leave(at *listedName) { at.uses-- }
