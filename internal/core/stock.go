package core

// stock is what a session has beside its life: claims, kept results and keys.
// Most sessions have nothing most of the time, so it is a record of its own. It
// is made when it is first needed, and taken back by a renewal that finds nothing
// in it. To ask for something in no stock is to find nothing.
type stock struct {
	first   *claim // by seq
	last    *claim
	cursor  *claim // of the session's work
	claims  int
	held    int                  // of them not waiting
	index   tree[uint64, *claim] // empty: they are few
	results []*done              // by seq modulo their number, a power of two
	kept    int                  // bytes of them, beside their records
	keys    *tree[string, *key]
}

// stocks are stocks that nobody uses.
type stocks []*stock

// spareStocks is how many of them are kept: as many as busy sessions may open and
// end in turn.
const spareStocks = 64

// leastResults is how many results the table of a stock has room for at first.
const leastResults = 4

func (k *stock) head() *claim {
	if k == nil {
		return nil
	}
	return k.first
}

func (k *stock) at() *claim {
	if k == nil {
		return nil
	}
	return k.cursor
}

// point moves the cursor, to a claim of this stock.
func (k *stock) point(c *claim) {
	if k != nil {
		k.cursor = c
	}
}

func (k *stock) size() int {
	if k == nil {
		return 0
	}
	return k.claims
}

func (k *stock) holds() int {
	if k == nil {
		return 0
	}
	return k.held
}

func (k *stock) table() []*done {
	if k == nil {
		return nil
	}
	return k.results
}

// boundKeys are the keys that end with the session; nil: none.
func (k *stock) boundKeys() *tree[string, *key] {
	if k == nil || k.keys == nil || k.keys.n == 0 {
		return nil
	}
	return k.keys
}

func (k *stock) empty() bool {
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

// stock returns that of s, made if need be.
func (m *Machine) stock(s *session) *stock {
	if s.has == nil {
		if n := len(m.stocks); n > 0 {
			s.has, m.stocks = m.stocks[n-1], m.stocks[:n-1]
		} else {
			s.has = &stock{}
		}
	}
	return s.has
}

// take takes the stock of s, which has nothing any more, back.
func (l *stocks) take(s *session) {
	k := s.has
	s.has = nil
	if k == nil || len(*l) == spareStocks {
		return
	}
	results := k.results
	if len(results) != leastResults {
		results = nil
	}
	clear(results)
	*k = stock{results: results}
	*l = append(*l, k)
}
