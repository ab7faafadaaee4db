package core

// A command that has to find one claim among many looks at freeWalk of them in any
// case. More are taken from what its entry may look at (Config.Budget), because nothing
// else is applied meanwhile.
const freeWalk = 1000

// mostWalk is how many claims a command can ever look at.
func (m *Machine) mostWalk() int { return max(m.cfg.Budget, freeWalk) }

// walk says whether a command may look at n claims.
func (m *Machine) walk(n int) bool {
	if n <= freeWalk || m.early {
		return true
	}
	if n -= freeWalk; n > m.walks {
		return false
	}
	m.walks -= n
	return true
}

// walkTo says whether a command that has looked at n-1 claims may look at one more.
func (m *Machine) walkTo(n int) bool {
	if n <= freeWalk || m.early {
		return true
	}
	m.walks--
	return m.walks >= 0
}

// walkBusy refuses a command that the next entry can do.
func (r *Result) walkBusy() {
	r.refuse(CodeUnavailable, "others look at as many claims at this moment as can be looked at at once: try again")
}
