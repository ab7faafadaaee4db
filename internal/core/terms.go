package core

// terms are what a session was opened with. They never change, and those of one
// program mostly open all theirs with the same, so that such sessions share them.
type terms struct {
	ns       *namespace
	identity string
	owner    string
	meta     string
	ttl      int64
	grace    int64
	window   uint64
	policy   Policy
	fleeting bool
}

// recentTerms are terms that sessions were opened with lately, each at a place
// that follows from them. What was there before is only not shared any more.
type recentTerms [256]*terms

// share returns terms like t that keep nothing of what its texts lie in.
func (l *recentTerms) share(t *terms) *terms {
	at := &l[t.digest()>>56]
	if *at == nil || **at != *t {
		own := *t
		own.identity, own.owner, own.meta = clone(t.identity), clone(t.owner), clone(t.meta)
		*at = &own
	}
	return *at
}

func (t *terms) digest() digest {
	var d digest
	d.add2(uint64(t.ttl), uint64(t.grace))
	addBytes(&d, t.identity)
	addBytes(&d, t.owner)
	addBytes(&d, t.meta)
	return d
}
