package filelog

// Position is a place in the log: its generation and a byte of it, in one word
// that processes can replace at once.
type Position uint64

const offsetBits = 40

// At is the position of a byte of a generation.
func At(generation, offset uint64) Position { return Position(generation<<offsetBits | offset) }

// Generation is the number of the file, from 1.
func (p Position) Generation() uint64 { return uint64(p) >> offsetBits }

// Offset is the byte of the file.
func (p Position) Offset() uint64 { return uint64(p) & (1<<offsetBits - 1) }
