package pghold

import (
	"encoding/binary"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// Numbers and truth values are all that a quick grant and its release send and
// get. pgx finds out how to write and read a value from its type and the column's,
// which takes longer than writing and reading these.

// writeSmall fills b with args, encoded in buf; false: there are others among them, or
// among the results.
func writeSmall(b *pgx.ExtendedQueryBuilder, buf []byte, sd *pgconn.StatementDescription, args []any) ([]byte, bool) {
	b.ParamValues, b.ParamFormats, b.ResultFormats = b.ParamValues[:0], b.ParamFormats[:0], b.ResultFormats[:0]
	buf = buf[:0]
	if len(args) != len(sd.ParamOIDs) {
		return buf, false
	}
	for i, arg := range args {
		at := len(buf)
		switch n := arg.(type) {
		case int64:
			buf = binary.BigEndian.AppendUint64(buf, uint64(n))
		case int32:
			buf = binary.BigEndian.AppendUint32(buf, uint32(n))
		}
		if smallSize(sd.ParamOIDs[i]) < 4 || len(buf)-at != smallSize(sd.ParamOIDs[i]) {
			return buf, false
		}
		b.ParamValues = append(b.ParamValues, buf[at:])
		b.ParamFormats = append(b.ParamFormats, pgtype.BinaryFormatCode)
	}
	for i := range sd.Fields {
		if smallSize(sd.Fields[i].DataTypeOID) == 0 {
			return buf, false
		}
		b.ResultFormats = append(b.ResultFormats, pgtype.BinaryFormatCode)
	}
	return buf, true
}

// smallSize is how many bytes a value of a small type has; 0: it is none.
func smallSize(oid uint32) int {
	switch oid {
	case pgtype.Int8OID:
		return 8
	case pgtype.Int4OID:
		return 4
	case pgtype.BoolOID:
		return 1
	}
	return 0
}

// readSmall reads a value in binary format; false: it is none.
func readSmall(oid uint32, v []byte, into any) bool {
	if v != nil && len(v) != smallSize(oid) {
		return false
	}
	switch to := into.(type) {
	case **int64:
		if *to = nil; v != nil && oid == pgtype.Int8OID {
			*to = new(int64(binary.BigEndian.Uint64(v)))
		}
		return v == nil || oid == pgtype.Int8OID
	case *int64:
		if v != nil && oid == pgtype.Int8OID {
			*to = int64(binary.BigEndian.Uint64(v))
		}
		return v != nil && oid == pgtype.Int8OID
	case *uint32:
		if v != nil && oid == pgtype.Int4OID {
			*to = binary.BigEndian.Uint32(v)
		}
		return v != nil && oid == pgtype.Int4OID
	case *bool:
		if v != nil && oid == pgtype.BoolOID {
			*to = v[0] != 0
		}
		return v != nil && oid == pgtype.BoolOID
	}
	return false
}
