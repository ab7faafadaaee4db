package core

import "encoding/binary"

// The fields of a result beyond number and code.
const (
	hasText = 1 << iota
	hasRevision
	hasTokenOf
	hasDeadline
	hasNumber
	hasOK
	hasWindowOf
	hasHolders
	hasWaiting
	hasKeys
	hasAnswer
	endResult
)

func resultFields(r *Result) uint64 {
	return mask(r.Text != "", hasText) | mask(r.Revision != 0, hasRevision) | mask(r.Token != 0, hasTokenOf) |
		mask(r.Deadline != 0, hasDeadline) | mask(r.Number != 0, hasNumber) | mask(r.OK, hasOK) |
		mask(r.Window != 0, hasWindowOf) | mask(len(r.Holders) > 0, hasHolders) |
		mask(r.Waiting != 0, hasWaiting) | mask(len(r.Keys) > 0, hasKeys) | mask(r.Limit != nil, hasAnswer)
}

func appendResult(dst []byte, r *Result) []byte {
	fields := resultFields(r)
	dst = binary.AppendUvarint(dst, r.Seq)
	dst = append(dst, byte(r.Code))
	dst = binary.AppendUvarint(dst, fields)
	if fields&hasText != 0 {
		dst = appendString(dst, r.Text)
	}
	for _, n := range [...]struct{ bit, n uint64 }{{hasRevision, r.Revision}, {hasTokenOf, r.Token},
		{hasDeadline, uint64(r.Deadline)}, {hasNumber, r.Number}, {hasWindowOf, r.Window}, {hasWaiting, r.Waiting}} {
		if fields&n.bit != 0 {
			dst = binary.AppendUvarint(dst, n.n)
		}
	}
	if fields&hasHolders != 0 {
		dst = appendHolders(dst, r.Holders)
	}
	if fields&hasKeys != 0 {
		dst = appendKeyResults(dst, r.Keys)
	}
	if fields&hasAnswer != 0 {
		dst = appendAnswer(dst, r.Limit)
	}
	return dst
}

func (r *reader) result(x *Result) {
	*x = Result{Holders: x.Holders[:0], Keys: x.Keys[:0]}
	x.Seq = r.uvarint()
	x.Code = Code(r.enum(byte(lastCode), "code"))
	fields := r.uvarint()
	if fields >= endResult {
		r.fail("unknown field of a result")
		return
	}
	if fields&hasText != 0 {
		x.Text = r.string()
	}
	for _, n := range [...]struct {
		bit uint64
		n   *uint64
	}{{hasRevision, &x.Revision}, {hasTokenOf, &x.Token}, {hasDeadline, nil}, {hasNumber, &x.Number},
		{hasWindowOf, &x.Window}, {hasWaiting, &x.Waiting}} {
		switch {
		case fields&n.bit == 0:
		case n.n == nil:
			x.Deadline = int64(r.uvarint())
		default:
			*n.n = r.uvarint()
		}
	}
	x.OK = fields&hasOK != 0
	if fields&hasHolders != 0 {
		x.Holders = r.holders(x.Holders)
	}
	if fields&hasKeys != 0 {
		x.Keys = r.keyResults(x.Keys)
	}
	if fields&hasAnswer != 0 {
		x.Limit = r.answer()
	}
	r.absent(fields != resultFields(x))
}

func appendHolders(dst []byte, list []Holder) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(list)))
	for i := range list {
		h := &list[i]
		dst = append(dst, h.Session[:]...)
		dst = appendString(dst, h.Owner)
		dst = appendString(dst, h.Meta)
		dst = append(dst, byte(h.Mode))
		dst = binary.AppendVarint(dst, h.Weight)
		dst = binary.AppendUvarint(dst, h.Token)
		dst = binary.AppendVarint(dst, h.Since)
		dst = binary.AppendVarint(dst, h.Deadline)
		dst = appendBool(dst, h.Revoked)
	}
	return dst
}

func (r *reader) holders(dst []Holder) []Holder {
	for range r.count() {
		dst = append(dst, Holder{
			Session:  r.id(),
			Owner:    r.string(),
			Meta:     r.string(),
			Mode:     Mode(r.enum(byte(Shared), "mode")),
			Weight:   r.varint(),
			Token:    r.uvarint(),
			Since:    r.varint(),
			Deadline: r.varint(),
			Revoked:  r.flag(r.byte()),
		})
		if r.err != nil {
			return dst[:0]
		}
	}
	return dst
}

func appendKeyResults(dst []byte, list []KeyResult) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(list)))
	for i := range list {
		k := &list[i]
		dst = binary.AppendUvarint(dst, k.Count)
		dst = appendBool(dst, k.More)
		dst = binary.AppendUvarint(dst, uint64(len(k.Keys)))
		for j := range k.Keys {
			dst = appendKey(dst, &k.Keys[j])
		}
	}
	return dst
}

func (r *reader) keyResults(dst []KeyResult) []KeyResult {
	for range r.count() {
		dst = grow(dst)
		k := &dst[len(dst)-1]
		*k = KeyResult{Keys: k.Keys[:0], Count: r.uvarint(), More: r.flag(r.byte())}
		for range r.count() {
			k.Keys = append(k.Keys, r.key())
			if r.err != nil {
				return dst[:0]
			}
		}
	}
	return dst
}

func appendKey(dst []byte, k *Key) []byte {
	dst = appendString(dst, k.Name)
	dst = appendString(dst, k.Value)
	dst = binary.AppendUvarint(dst, k.Created)
	dst = binary.AppendUvarint(dst, k.Modified)
	dst = binary.AppendUvarint(dst, k.Version)
	dst = append(dst, k.Session[:]...)
	return binary.AppendVarint(dst, k.Deadline)
}

func (r *reader) key() Key {
	return Key{
		Name:     r.string(),
		Value:    r.bytes(),
		Created:  r.uvarint(),
		Modified: r.uvarint(),
		Version:  r.uvarint(),
		Session:  r.id(),
		Deadline: r.varint(),
	}
}

// AppendReply appends the encoding of p to dst.
func AppendReply(dst []byte, p *Reply) []byte {
	dst = header(dst, tagReply)
	dst = append(dst, p.Session[:]...)
	dst = binary.AppendUvarint(dst, p.Attempt)
	dst = binary.AppendVarint(dst, p.Now)
	dst = binary.AppendVarint(dst, p.Deadline)
	dst = binary.AppendUvarint(dst, uint64(len(p.Results)))
	for i := range p.Results {
		dst = appendResult(dst, &p.Results[i])
	}
	return dst
}

// DecodeReply decodes all of b into p, using p's slices again. Strings and byte
// slices alias b. On error p has no meaning.
func DecodeReply(b []byte, p *Reply) error {
	r := open(b, tagReply)
	p.Session = r.id()
	p.Attempt = r.uvarint()
	p.Now = r.varint()
	p.Deadline = r.varint()
	p.Results = p.Results[:0]
	for range r.count() {
		p.Results = grow(p.Results)
		r.result(&p.Results[len(p.Results)-1])
		if r.err != nil {
			break
		}
	}
	return r.end()
}

// AppendRenewed appends the encoding of n to dst.
func AppendRenewed(dst []byte, n *Renewed) []byte {
	dst = header(dst, tagRenewed)
	dst = append(dst, n.Session[:]...)
	dst = binary.AppendUvarint(dst, n.Attempt)
	dst = binary.AppendVarint(dst, n.Now)
	return binary.AppendVarint(dst, n.Deadline)
}

// DecodeRenewed decodes all of b into n.
func DecodeRenewed(b []byte, n *Renewed) error {
	r := open(b, tagRenewed)
	*n = Renewed{Session: r.id(), Attempt: r.uvarint(), Now: r.varint(), Deadline: r.varint()}
	return r.end()
}

// AppendPush appends the encoding of p to dst.
func AppendPush(dst []byte, p *Push) []byte {
	dst = header(dst, tagPush)
	dst = append(dst, p.Session[:]...)
	dst = binary.AppendUvarint(dst, p.Seq)
	dst = append(dst, byte(p.State), byte(p.Code))
	dst = binary.AppendUvarint(dst, p.Token)
	return binary.AppendVarint(dst, p.Deadline)
}

// DecodePush decodes all of b into p.
func DecodePush(b []byte, p *Push) error {
	r := open(b, tagPush)
	*p = Push{
		Session:  r.id(),
		Seq:      r.uvarint(),
		State:    ClaimState(r.enum(byte(ClaimGone), "claim state")),
		Code:     Code(r.enum(byte(lastCode), "code")),
		Token:    r.uvarint(),
		Deadline: r.varint(),
	}
	return r.end()
}
