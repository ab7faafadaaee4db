package core

import "encoding/binary"

// The lists inside a command: wants, compares and key operations.

func appendWants(dst []byte, wants []Want) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(wants)))
	for i := range wants {
		w := &wants[i]
		dst = append(dst, byte(w.Kind), byte(w.Mode))
		dst = binary.AppendVarint(dst, w.Weight)
		dst = binary.AppendVarint(dst, w.Limit)
		dst = appendString(dst, w.Name)
	}
	return dst
}

func (r *reader) wants(dst []Want) []Want {
	n := r.parts()
	if n > maxWants {
		r.fail("too many wants")
		n = 0
	}
	for range n {
		dst = grow(dst)
		w := &dst[len(dst)-1]
		w.Kind = Kind(r.enum(byte(Sequence), "kind"))
		w.Mode = Mode(r.enum(byte(Shared), "mode"))
		w.Weight = r.varint()
		w.Limit = r.varint()
		w.Name = r.string()
	}
	return dst
}

func appendCompares(dst []byte, list []Compare) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(list)))
	for i := range list {
		c := &list[i]
		dst = appendString(dst, c.Key)
		dst = appendBool(dst, c.Prefix)
		dst = append(dst, byte(c.Target), byte(c.Is))
		dst = binary.AppendUvarint(dst, c.Num)
		dst = appendString(dst, c.Value)
		dst = append(dst, c.Session[:]...)
	}
	return dst
}

func (r *reader) compares(dst []Compare) []Compare {
	for range r.parts() {
		dst = append(dst, Compare{
			Key:     r.string(),
			Prefix:  r.flag(r.byte()),
			Target:  CompareTarget(r.enum(byte(CompareSession), "compare target")),
			Is:      Relation(r.enum(byte(Greater), "relation")),
			Num:     r.uvarint(),
			Value:   r.bytes(),
			Session: r.id(),
		})
		if r.err != nil {
			return dst[:0]
		}
	}
	return dst
}

// The fields of a key operation beyond kind and key.
const (
	keyPrefix = 1 << iota
	keyValue
	keySession
	keyExpire
	keyLimit
	keySort
	keyDesc
	keyOnly
	keyPrevious
	keyAfter
	keyCount
	endKeyOp
)

func keyOpFields(o *KeyOp) uint64 {
	return mask(o.Prefix, keyPrefix) | mask(len(o.Value) > 0, keyValue) | mask(o.Session != SessionID{}, keySession) |
		mask(o.Expire != 0, keyExpire) | mask(o.Limit != 0, keyLimit) | mask(o.Sort != 0, keySort) |
		mask(o.Desc, keyDesc) | mask(o.KeysOnly, keyOnly) | mask(o.Previous, keyPrevious) |
		mask(o.After != "", keyAfter) | mask(o.Count, keyCount)
}

func appendKeyOps(dst []byte, list []KeyOp) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(list)))
	for i := range list {
		dst = appendKeyOp(dst, &list[i])
	}
	return dst
}

func appendKeyOp(dst []byte, o *KeyOp) []byte {
	fields := keyOpFields(o)
	dst = append(dst, byte(o.Kind))
	dst = binary.AppendUvarint(dst, fields)
	dst = appendString(dst, o.Key)
	if fields&keyValue != 0 {
		dst = appendString(dst, o.Value)
	}
	if fields&keySession != 0 {
		dst = append(dst, o.Session[:]...)
	}
	if fields&keyExpire != 0 {
		dst = binary.AppendVarint(dst, o.Expire)
	}
	if fields&keyLimit != 0 {
		dst = binary.AppendUvarint(dst, o.Limit)
	}
	if fields&keySort != 0 {
		dst = append(dst, byte(o.Sort))
	}
	if fields&keyAfter != 0 {
		dst = appendString(dst, o.After)
	}
	return dst
}

func (r *reader) keyOps(dst []KeyOp) []KeyOp {
	for range r.parts() {
		dst = append(dst, KeyOp{})
		r.keyOp(&dst[len(dst)-1])
		if r.err != nil {
			return dst[:0]
		}
	}
	return dst
}

func (r *reader) keyOp(o *KeyOp) {
	o.Kind = KeyOpKind(r.enum(byte(KeyDelete), "key operation"))
	fields := r.uvarint()
	if fields >= endKeyOp {
		r.fail("unknown field of a key operation")
		return
	}
	o.Key = r.string()
	o.Prefix, o.Desc = fields&keyPrefix != 0, fields&keyDesc != 0
	o.KeysOnly, o.Previous, o.Count = fields&keyOnly != 0, fields&keyPrevious != 0, fields&keyCount != 0
	if fields&keyValue != 0 {
		o.Value = r.bytes()
	}
	if fields&keySession != 0 {
		o.Session = r.id()
	}
	if fields&keyExpire != 0 {
		o.Expire = r.varint()
	}
	if fields&keyLimit != 0 {
		o.Limit = r.uvarint()
	}
	if fields&keySort != 0 {
		o.Sort = SortBy(r.enum(byte(ByValue), "sort order"))
	}
	if fields&keyAfter != 0 {
		o.After = r.string()
	}
	r.absent(fields != keyOpFields(o))
}
