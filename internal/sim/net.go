package sim

// simLink is one direction between two parties: nodes by their ID, clients by a
// number from clientBase on.
type simLink struct{ from, to uint64 }

const clientBase = 1 << 32

// network loses, repeats, delays and reorders.
type network struct {
	w    *world
	cut  map[simLink]int // how many faults cut it
	loss float64
}

func (n *network) open(from, to uint64) bool { return n.cut[simLink{from, to}] == 0 }

// sever cuts a direction for a time.
func (n *network) sever(l simLink, d int64) {
	n.cut[l]++
	n.w.after(d, func() {
		if n.cut[l]--; n.cut[l] <= 0 {
			delete(n.cut, l)
		}
	})
}

// delay is how long something takes: mostly short, now and then very long.
func (n *network) delay() int64 {
	if n.w.rng.IntN(200) == 0 {
		return n.w.between(millisecond, second)
	}
	return n.w.between(50*microsecond, 3*millisecond)
}

// send delivers a datagram, perhaps late, perhaps twice, perhaps never.
func (n *network) send(from, to uint64, deliver func()) {
	copies := 1
	if n.w.chance(0.005) {
		copies = 2
	}
	for range copies {
		n.once(from, to, deliver)
	}
}

// once is send for what never comes twice: a call over a connection of its own.
func (n *network) once(from, to uint64, deliver func()) {
	if n.w.chance(n.loss) {
		return
	}
	n.w.after(n.delay(), func() {
		if n.open(from, to) {
			deliver()
		}
	})
}

// pipe is one direction of a connection: in order, and broken for good once
// something is lost. One that leaks loses single messages and goes on: the
// session has to notice.
type pipe struct {
	leaks    bool
	n        *network
	from, to uint64
	last     int64 // when the newest thing on it arrives
	broken   bool
}

// leak is what a pipe that leaks loses, as a part of its messages.
const leak = 0.1

func (p *pipe) send(deliver func()) {
	if p.n.w.chance(p.n.loss / 4) {
		p.broken = true
	}
	p.last = max(p.last+1, p.n.w.now+p.n.delay())
	p.n.w.at(p.last, func() {
		if !p.n.open(p.from, p.to) {
			p.broken = true
		}
		if !p.broken && !(p.leaks && p.n.loss > 0 && p.n.w.chance(leak)) {
			deliver()
		}
	})
}
