package core

import (
	"encoding/binary"
	"math/bits"
)

// digest is a running 64-bit hash: not against an adversary, but no two
// machines that put out different things are likely to agree on it.
type digest uint64

func (d *digest) add(x uint64) {
	hi, lo := bits.Mul64(uint64(*d)^0x9fb21c651e98df25, x^0xd6e8feb86659fd93)
	*d = digest(bits.RotateLeft64(uint64(*d), 23) + (hi ^ lo))
}

func (d *digest) addBool(b bool) {
	if b {
		d.add(1)
	} else {
		d.add(2)
	}
}

func addBytes[T ~string | ~[]byte](d *digest, s T) {
	d.add(uint64(len(s)))
	for len(s) >= 8 {
		d.add(uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
			uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56)
		s = s[8:]
	}
	if len(s) > 0 {
		var tail uint64
		for i := range len(s) {
			tail |= uint64(s[i]) << (8 * i)
		}
		d.add(tail)
	}
}

func (d *digest) addID(id *SessionID) {
	d.add(binary.LittleEndian.Uint64(id[:8]))
	d.add(binary.LittleEndian.Uint64(id[8:]))
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
	d.add(uint64(m.now))
	d.add(m.revision)
	for i := range m.out.Replies[from.replies:] {
		d.addReply(&m.out.Replies[from.replies+i])
	}
	for i := range m.out.Renewed[from.renewed:] {
		n := &m.out.Renewed[from.renewed+i]
		d.addID(&n.Session)
		d.add(n.Attempt)
		d.add(uint64(n.Deadline))
	}
	for i := range m.out.Pushes[from.pushes:] {
		p := &m.out.Pushes[from.pushes+i]
		d.addID(&p.Session)
		d.add(p.Seq)
		d.add(uint64(p.State)<<8 | uint64(p.Code))
		d.add(p.Token)
		d.add(uint64(p.Deadline))
	}
	for i := range m.out.Events[from.events:] {
		d.addEvent(&m.out.Events[from.events+i])
	}
	m.hash = uint64(d)
}

func (d *digest) addReply(p *Reply) {
	d.addID(&p.Session)
	d.add(p.Attempt)
	d.add(uint64(p.Deadline))
	for i := range p.Results {
		r := &p.Results[i]
		d.add(r.Seq)
		d.add(uint64(r.Code))
		d.add(r.Revision)
		d.add(r.Token)
		d.add(uint64(r.Deadline))
		d.add(r.Number)
		d.add(r.Window)
		d.add(r.Waiting)
		d.addBool(r.OK)
		for j := range r.Holders {
			d.addHolder(&r.Holders[j])
		}
		for j := range r.Keys {
			d.addKeys(&r.Keys[j])
		}
	}
}

func (d *digest) addHolder(h *Holder) {
	d.addID(&h.Session)
	addBytes(d, h.Owner)
	addBytes(d, h.Meta)
	d.add(h.Token)
	d.add(uint64(h.Weight)<<8 | uint64(h.Mode))
	d.add(uint64(h.Since))
	d.add(uint64(h.Deadline))
	d.addBool(h.Revoked)
}

func (d *digest) addKeys(k *KeyResult) {
	d.add(k.Count)
	d.addBool(k.More)
	for i := range k.Keys {
		d.addKey(&k.Keys[i])
	}
}

func (d *digest) addKey(k *Key) {
	addBytes(d, k.Name)
	addBytes(d, k.Value)
	d.add(k.Created)
	d.add(k.Modified)
	d.add(k.Version)
	d.addID(&k.Lease)
	d.add(uint64(k.Deadline))
}

func (d *digest) addEvent(e *Event) {
	d.add(e.Revision)
	d.add(uint64(e.Ordinal)<<32 | uint64(e.Kind)<<24 | uint64(e.Verb)<<16 | uint64(e.Reason)<<8 | uint64(e.Mode))
	addBytes(d, e.Namespace)
	addBytes(d, e.Name)
	d.addID(&e.Session)
	addBytes(d, e.Owner)
	d.add(e.Token)
	d.add(uint64(e.Weight))
	d.add(e.Number)
	addBytes(d, e.Value)
	if e.Kind == EventKV {
		d.addKey(&e.Key)
		d.addKey(&e.Prev)
	}
}
