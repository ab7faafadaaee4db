package core

// Damage flips a bit of the state, as a broken memory might: of the number of the first
// counter that is there; false: there is none. It is for tests of what finds it.
func (m *Machine) Damage(bit uint) (done bool) {
	m.resources.each(func(r *resource) {
		if !done && r.kind == Counter {
			r.number ^= 1 << bit
			done = true
		}
	})
	return done
}
