package core

import (
	"encoding/binary"
	"math/bits"
)

// A command is its op, its number, a mask of the fields that are not zero, and
// those fields in the order of their bits. A bit that this list does not have
// is from a later version and refused.
const (
	hasWants = 1 << iota
	hasTarget
	hasFlags
	hasName
	hasToken
	hasA
	hasWait
	hasMaxHold
	hasMinHold
	hasDelay
	hasValue
	hasKind
	hasLimit
	hasCount
	hasUnsigned
	hasB
	hasSession
	hasNamespace
	hasIdentity
	hasOwner
	hasMeta
	hasTTL
	hasWindow
	hasPolicy
	hasGrace
	hasIf
	hasThen
	hasElse
	hasAsk
	endCommand
)

const (
	lastOp   = OpLimit
	allFlags = Try | Reentrant | Now | Fleeting | Fresh
	maxWants = 1 << 10
)

// mask sets bit if on.
func mask(on bool, bit uint64) uint64 {
	if on {
		return bit
	}
	return 0
}

func fieldsOf(c *Command) uint64 {
	return mask(len(c.Wants) > 0, hasWants) | mask(c.Target != 0, hasTarget) | mask(c.Flags != 0, hasFlags) |
		mask(c.Name != "", hasName) | mask(c.Token != 0, hasToken) | mask(c.A != 0, hasA) |
		mask(c.Wait != 0, hasWait) | mask(c.MaxHold != 0, hasMaxHold) | mask(c.MinHold != 0, hasMinHold) |
		mask(c.Delay != 0, hasDelay) | mask(len(c.Value) > 0, hasValue) | mask(c.Kind != 0, hasKind) |
		mask(c.Limit != 0, hasLimit) | mask(c.Count != 0, hasCount) | mask(c.Unsigned, hasUnsigned) |
		mask(c.B != 0, hasB) | mask(c.Session != SessionID{}, hasSession) | mask(c.Namespace != "", hasNamespace) |
		mask(c.Identity != "", hasIdentity) | mask(c.Owner != "", hasOwner) | mask(c.Meta != "", hasMeta) |
		mask(c.TTL != 0, hasTTL) | mask(c.Window != 0, hasWindow) | mask(c.Policy != 0, hasPolicy) |
		mask(c.Grace != 0, hasGrace) | mask(len(c.If) > 0, hasIf) | mask(len(c.Then) > 0, hasThen) |
		mask(len(c.Else) > 0, hasElse) | mask(c.Ask != nil, hasAsk)
}

func appendCommand(dst []byte, c *Command) []byte {
	fields := fieldsOf(c)
	dst = append(dst, byte(c.Op))
	dst = binary.AppendUvarint(dst, c.Seq)
	dst = binary.AppendUvarint(dst, fields)
	for rest := fields; rest != 0; rest &= rest - 1 {
		dst = appendField(dst, c, 1<<bits.TrailingZeros64(rest))
	}
	return dst
}

func appendField(dst []byte, c *Command, field uint64) []byte {
	switch field {
	case hasWants:
		return appendWants(dst, c.Wants)
	case hasTarget:
		return binary.AppendUvarint(dst, c.Target)
	case hasFlags:
		return append(dst, byte(c.Flags))
	case hasName:
		return appendString(dst, c.Name)
	case hasToken:
		return binary.AppendUvarint(dst, c.Token)
	case hasA:
		return binary.AppendUvarint(dst, c.A)
	case hasWait:
		return binary.AppendVarint(dst, c.Wait)
	case hasMaxHold:
		return binary.AppendVarint(dst, c.MaxHold)
	case hasMinHold:
		return binary.AppendVarint(dst, c.MinHold)
	case hasDelay:
		return binary.AppendVarint(dst, c.Delay)
	case hasValue:
		return appendString(dst, c.Value)
	case hasKind:
		return append(dst, byte(c.Kind))
	case hasLimit:
		return binary.AppendVarint(dst, c.Limit)
	}
	return appendRareField(dst, c, field)
}

func appendRareField(dst []byte, c *Command, field uint64) []byte {
	switch field {
	case hasCount:
		return append(dst, byte(c.Count))
	case hasB:
		return binary.AppendUvarint(dst, c.B)
	case hasSession:
		return append(dst, c.Session[:]...)
	case hasNamespace:
		return appendString(dst, c.Namespace)
	case hasIdentity:
		return appendString(dst, c.Identity)
	case hasOwner:
		return appendString(dst, c.Owner)
	case hasMeta:
		return appendString(dst, c.Meta)
	case hasTTL:
		return binary.AppendVarint(dst, c.TTL)
	case hasWindow:
		return binary.AppendUvarint(dst, c.Window)
	case hasPolicy:
		return append(dst, byte(c.Policy))
	case hasGrace:
		return binary.AppendVarint(dst, c.Grace)
	case hasIf:
		return appendCompares(dst, c.If)
	case hasThen:
		return appendKeyOps(dst, c.Then)
	case hasElse:
		return appendKeyOps(dst, c.Else)
	case hasAsk:
		return appendAsk(dst, c.Ask)
	}
	return dst // hasUnsigned: the bit says it all
}

// command decodes into c, and uses its slices again.
func (r *reader) command(c *Command) {
	begin := r.i
	c.reset()
	c.Op = Op(r.enum(byte(lastOp), "op"))
	if c.Op == 0 {
		r.fail("unknown op")
	}
	c.Seq = r.uvarint()
	fields := r.uvarint()
	if fields >= endCommand {
		r.fail("unknown field")
	}
	for rest := fields; rest != 0 && r.err == nil; rest &= rest - 1 {
		r.field(c, 1<<bits.TrailingZeros64(rest))
	}
	if r.err == nil && r.i-begin > MaxCommand {
		r.fail("command longer than 64 KiB")
	}
}

// reset empties c and keeps the room of its lists. Zero first, then what is kept:
// a literal would be made elsewhere and copied, which costs more than decoding.
func (c *Command) reset() {
	wants, ifs, then, els := c.Wants[:0], c.If[:0], c.Then[:0], c.Else[:0]
	*c = Command{}
	c.Wants, c.If, c.Then, c.Else = wants, ifs, then, els
}

func (r *reader) field(c *Command, field uint64) {
	switch field {
	case hasWants:
		c.Wants = r.wants(c.Wants)
		r.absent(len(c.Wants) == 0)
	case hasTarget:
		c.Target = r.some()
	case hasFlags:
		c.Flags = Flags(r.someEnum(byte(allFlags), "flags"))
	case hasName:
		c.Name = r.someString()
	case hasToken:
		c.Token = r.some()
	case hasA:
		c.A = r.some()
	case hasWait:
		c.Wait = r.someSigned()
	case hasMaxHold:
		c.MaxHold = r.someSigned()
	case hasMinHold:
		c.MinHold = r.someSigned()
	case hasDelay:
		c.Delay = r.someSigned()
	case hasValue:
		c.Value = r.someBytes()
	case hasKind:
		c.Kind = Kind(r.someEnum(byte(Limiter), "kind"))
	case hasLimit:
		c.Limit = r.someSigned()
	default:
		r.rareField(c, field)
	}
}

func (r *reader) rareField(c *Command, field uint64) {
	switch field {
	case hasCount:
		c.Count = CountOp(r.someEnum(byte(CountAddAll), "counter operation"))
	case hasUnsigned:
		c.Unsigned = true
	case hasB:
		c.B = r.some()
	case hasSession:
		c.Session = r.id()
		r.absent(c.Session == SessionID{})
	case hasNamespace:
		c.Namespace = r.someString()
	case hasIdentity:
		c.Identity = r.someString()
	case hasOwner:
		c.Owner = r.someString()
	case hasMeta:
		c.Meta = r.someString()
	case hasTTL:
		c.TTL = r.someSigned()
	case hasWindow:
		c.Window = r.some()
	case hasPolicy:
		c.Policy = Policy(r.someEnum(byte(Never), "policy"))
	case hasGrace:
		c.Grace = r.someSigned()
	case hasIf:
		c.If = r.compares(c.If)
		r.absent(len(c.If) == 0)
	case hasThen:
		c.Then = r.keyOps(c.Then)
		r.absent(len(c.Then) == 0)
	case hasElse:
		c.Else = r.keyOps(c.Else)
		r.absent(len(c.Else) == 0)
	case hasAsk:
		c.Ask = r.ask()
	}
}
