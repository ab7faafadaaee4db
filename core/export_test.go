package core

import "encoding/binary"

// Reseal makes one chunk of records into a whole snapshot whose checks are
// right, so that tests can say anything in it.
func Reseal(chunk []byte) [][]byte {
	r := open(chunk, tagSnapshot)
	if r.err != nil {
		return [][]byte{chunk}
	}
	r.uvarint()
	v := &View{}
	out := binary.AppendUvarint(header(nil, tagSnapshot), 0)
	for r.err == nil && r.rest() > 0 {
		table := int(r.byte()) % tables
		if body := r.span(); r.err == nil {
			out = v.append(out, table, body)
		}
	}
	end := binary.LittleEndian.AppendUint64(binary.AppendUvarint(nil, v.records), v.sum)
	out = v.append(out, tableEnd, end)
	var seal digest
	addBytes(&seal, out)
	return [][]byte{binary.LittleEndian.AppendUint64(out, uint64(seal))}
}
