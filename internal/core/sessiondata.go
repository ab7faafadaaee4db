package core

// sessionData is what a session has beside its life: claims, kept results and keys.
// Most sessions have nothing most of the time, so it is a record of its own. It
// is made when it is first needed, and taken back by a renewal that finds nothing
// in it. To ask for something in no data is to find nothing.
type sessionData struct {
	first   *claim // by seq
	last    *claim
	cursor  *claim // of the session's work
	claims  int
	held    int                  // of them not waiting
	over    int                  // of them under a granted upgrade
	index   tree[uint64, *claim] // empty: they are few
	results []*done              // by seq modulo their number, a power of two
	kept    int                  // bytes of them, beside their records
	keys    *tree[string, *key]
}

// dataPool has the data that no session uses.
type dataPool []*sessionData

// spareData is how many of them are kept: as many as busy sessions may open and
// end in turn.
const spareData = 64

// leastResults is how many results the table of a session has room for at first.
const leastResults = 4

func (k *sessionData) head() *claim {
	if k == nil {
		return nil
	}
	return k.first
}

func (k *sessionData) at() *claim {
	if k == nil {
		return nil
	}
	return k.cursor
}

// point moves the cursor, to a claim of this session.
func (k *sessionData) point(c *claim) {
	if k != nil {
		k.cursor = c
	}
}

func (k *sessionData) size() int {
	if k == nil {
		return 0
	}
	return k.claims
}

// replaced are the claims under granted upgrades, which neither hold nor wait.
func (k *sessionData) replaced() int {
	if k == nil {
		return 0
	}
	return k.over
}

func (k *sessionData) holds() int {
	if k == nil {
		return 0
	}
	return k.held
}

func (k *sessionData) table() []*done {
	if k == nil {
		return nil
	}
	return k.results
}

// boundKeys are the keys that end with the session; nil: none.
func (k *sessionData) boundKeys() *tree[string, *key] {
	if k == nil || k.keys == nil || k.keys.n == 0 {
		return nil
	}
	return k.keys
}

func (k *sessionData) empty() bool {
	if k.claims > 0 || k.boundKeys() != nil {
		return false
	}
	for _, d := range k.results {
		if d != nil {
			return false
		}
	}
	return true
}

// dataOf returns the data of s, made if need be.
func (m *Machine) dataOf(s *session) *sessionData {
	if s.has == nil {
		if n := len(m.spare); n > 0 {
			s.has, m.spare = m.spare[n-1], m.spare[:n-1]
		} else {
			s.has = &sessionData{}
		}
	}
	return s.has
}

// take takes the data of s, which has nothing any more, back.
func (l *dataPool) take(s *session) {
	k := s.has
	s.has = nil
	if k == nil || len(*l) == spareData {
		return
	}
	results := k.results
	if len(results) != leastResults {
		results = nil
	}
	clear(results)
	*k = sessionData{results: results}
	*l = append(*l, k)
}
