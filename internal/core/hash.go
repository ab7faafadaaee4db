package core

import (
	"encoding/binary"
	"math/bits"
)

// digest is a running 64-bit hash: not against an adversary, but no two
// machines that put out different things are likely to agree on it.
type digest uint64

func (d *digest) add(x uint64) { d.add2(x, 0x452821e638d01377) }

// add2 adds two words at the price of one.
func (d *digest) add2(x, y uint64) {
	hi, lo := bits.Mul64(uint64(*d)^x^0x9fb21c651e98df25, y^0xd6e8feb86659fd93)
	*d = digest(bits.RotateLeft64(uint64(*d), 23) + (hi ^ lo))
}

func addBytes[T ~string | ~[]byte](d *digest, s T) {
	n := uint64(len(s))
	for len(s) >= 16 {
		d.add2(word(s), word(s[8:]))
		s = s[16:]
	}
	if len(s) >= 8 {
		d.add2(word(s), n)
		s, n = s[8:], ^n
	}
	tail := n << 56
	for i := range len(s) {
		tail ^= uint64(s[i]) << (8 * i)
	}
	d.add2(tail, n)
}

func word[T ~string | ~[]byte](s T) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

func (d *digest) addID(id *SessionID) {
	d.add2(binary.LittleEndian.Uint64(id[:8]), binary.LittleEndian.Uint64(id[8:]))
}

func bit(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// lengths remember where an entry's output begins.
type lengths struct{ replies, renewed, pushes, events int }

func (o *Output) lengths() lengths {
	return lengths{len(o.Replies), len(o.Renewed), len(o.Pushes), len(o.Events)}
}

// hashOutput extends the machine's hash by what the entry put out. The texts of
// refusals are left out: they are for people and may be improved.
func (m *Machine) hashOutput(from lengths) {
	d := digest(m.hash)
	d.add2(uint64(m.now), m.revision)
	for i := range m.out.Replies[from.replies:] {
		d.addReply(&m.out.Replies[from.replies+i])
	}
	for i := range m.out.Renewed[from.renewed:] {
		n := &m.out.Renewed[from.renewed+i]
		d.addID(&n.Session)
		d.add2(n.Attempt, uint64(n.Deadline))
	}
	for i := range m.out.Pushes[from.pushes:] {
		p := &m.out.Pushes[from.pushes+i]
		d.addID(&p.Session)
		d.add2(p.Seq, uint64(p.State)<<8|uint64(p.Code))
		d.add2(p.Token, uint64(p.Deadline))
	}
	for i := range m.out.Events[from.events:] {
		d.addEvent(&m.out.Events[from.events+i])
	}
	m.hash = uint64(d)
}

func (d *digest) addReply(p *Reply) {
	d.addID(&p.Session)
	d.add2(p.Attempt, uint64(p.Deadline))
	for i := range p.Results {
		r := &p.Results[i]
		d.add2(r.Seq, uint64(r.Code)<<1|bit(r.OK))
		d.add2(r.Revision, r.Token)
		d.add2(uint64(r.Deadline), r.Number)
		d.add2(r.Window, r.Waiting)
		for j := range r.Holders {
			d.addHolder(&r.Holders[j])
		}
		for j := range r.Keys {
			d.addKeys(&r.Keys[j])
		}
		if r.Limit != nil {
			d.addAnswer(r.Limit)
		}
	}
}

func (d *digest) addAnswer(a *LimitAnswer) {
	d.add2(uint64(a.Decision.Asked), uint64(a.Decision.Remaining))
	d.add2(uint64(a.Decision.Limit), uint64(a.Now))
	d.add2(uint64(a.Decision.RetryAfter), uint64(a.Decision.ResetAfter))
	d.add2(uint64(a.Reservation.Cost), uint64(a.Reservation.At))
	d.add2(uint64(a.Reservation.Until), uint64(a.Reservation.Given))
	d.add(a.Reservation.Epoch)
	d.add2(uint64(a.Rate.Count), uint64(a.Rate.Per))
	d.add2(uint64(a.Rate.Burst), uint64(a.Rate.Initial))
	d.add2(uint64(a.Rate.Algorithm)<<8|uint64(a.Rate.Every), uint64(a.Rate.Offset))
}

func (d *digest) addHolder(h *Holder) {
	d.addID(&h.Session)
	addBytes(d, h.Owner)
	addBytes(d, h.Meta)
	d.add2(h.Token, uint64(h.Weight)<<8|uint64(h.Mode)<<1|bit(h.Revoked))
	d.add2(uint64(h.Since), uint64(h.Deadline))
}

func (d *digest) addKeys(k *KeyResult) {
	d.add2(k.Count, bit(k.More))
	for i := range k.Keys {
		d.addKey(&k.Keys[i])
	}
}

func (d *digest) addKey(k *Key) {
	addBytes(d, k.Name)
	addBytes(d, k.Value)
	d.add2(k.Created, k.Modified)
	d.add2(k.Version, uint64(k.Deadline))
	d.addID(&k.Session)
}

func (d *digest) addEvent(e *Event) {
	d.add2(e.Revision, uint64(e.Ordinal)<<32|uint64(e.Kind)<<24|uint64(e.Verb)<<16|uint64(e.Reason)<<8|uint64(e.Mode))
	addBytes(d, e.Namespace)
	addBytes(d, e.Name)
	d.addID(&e.Session)
	addBytes(d, e.Owner)
	d.add2(e.Token, uint64(e.Weight))
	addBytes(d, e.Value)
	d.add(e.Number)
	d.add2(e.Modified, uint64(e.Version))
	if e.Kind == EventKV {
		d.addKey(&e.Key)
		d.addKey(&e.Prev)
	}
}
