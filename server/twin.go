package server

import (
	"cmp"
	"sync"
	"time"
)

// stage is how far a process has come. It only falls.
type stage uint8

const (
	// takesPart: it hears what other nodes tell it, and so can vote.
	takesPart stage = iota
	// listens: it answers questions, and waits until another node has answered its own.
	listens
	// starts: nobody reaches it yet.
	starts
)

// presence is a process that runs with a directory.
type presence struct {
	Node  uint64
	Of    uint64 // the directory, as other nodes know it
	Run   uint64 // drawn at the start of the process
	Began int64  // when that was, in ns, by its clock
	Stage stage
	At    string // where it listens for other nodes
	Dir   string // its path and machine, for people
	// Passed: another node asks for it.
	Passed bool
}

// before is the order of processes with one directory: of two that have met the first stays. Nobody's
// latency counts in it. One that takes part by now goes before what has yet to, whatever their clocks say.
func (p *presence) before(o *presence) bool {
	return cmp.Or(cmp.Compare(p.Stage, o.Stage), cmp.Compare(p.Began, o.Began), cmp.Compare(p.Run, o.Run)) < 0
}

// twin is this process among those that run with its directory. Two never stop each other, nor do more in a
// circle: one that was told to stop stays at its stage, and one that has had another stopped can only come further to the
// front. So what has stopped each goes before it, as they are in the end.
type twin struct {
	mu     sync.Mutex
	self   presence
	yields bool      // to another: it does not come any further
	spoken time.Time // when another node has told it something for the first time
}

// shows is the process as it is now.
func (t *twin) shows() presence {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.self
}

// meet is to be told of another process, and says whether this one stops.
func (t *twin) meet(o *presence) (own presence, stops bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	stops = o.before(&t.self)
	t.yields = t.yields || stops
	return t.self, stops
}

// reach brings the process to a stage, unless it is to stop.
func (t *twin) reach(s stage) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.yields {
		t.self.Stage = min(t.self.Stage, s)
	}
}

// takesPart reports whether the process does.
func (t *twin) takesPart() bool { s := t.shows(); return s.Stage == takesPart }

// deafFor is how long a node that reaches nobody with its question, though others reach it, hears nothing of them: it
// may have to learn from them where they are.
const deafFor = 2 * time.Second

// hears reports whether the process takes part; it is asked with each message.
func (t *twin) hears() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.self.Stage == takesPart || t.yields:
	case t.spoken.IsZero():
		t.spoken = time.Now()
	case time.Since(t.spoken) >= deafFor:
		t.self.Stage = takesPart
	}
	return t.self.Stage == takesPart
}
