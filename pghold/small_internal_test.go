package pghold

import (
	"math"
	"reflect"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// What is written the short way is what pgx writes.
func TestSmall_AsPgxWrites(t *testing.T) {
	types := pgtype.NewMap()
	sd := &pgconn.StatementDescription{
		ParamOIDs: []uint32{pgtype.Int8OID, pgtype.Int4OID},
		Fields:    []pgconn.FieldDescription{{DataTypeOID: pgtype.Int8OID}, {DataTypeOID: pgtype.Int4OID}, {DataTypeOID: pgtype.BoolOID}},
	}
	for _, args := range [][]any{{int64(0), int32(0)}, {int64(math.MinInt64), int32(math.MaxInt32)}, {int64(-1), int32(-2)}} {
		var want, got pgx.ExtendedQueryBuilder
		if err := want.Build(types, sd, args); err != nil {
			t.Fatal(err)
		}
		_, ok := writeSmall(&got, nil, sd, args)
		if !ok || !reflect.DeepEqual(got.ParamValues, want.ParamValues) || !reflect.DeepEqual(got.ParamFormats, want.ParamFormats) || !reflect.DeepEqual(got.ResultFormats, want.ResultFormats) {
			t.Errorf("%v: %+v %v, want %+v", args, got, ok, want)
		}
	}
}

// Whatever is not small is left to pgx.
func TestSmall_LeavesTheRest(t *testing.T) {
	number, text := []uint32{pgtype.Int8OID}, []uint32{pgtype.TextOID}
	for name, c := range map[string]struct {
		params []uint32
		result uint32
		args   []any
	}{
		"a text":               {text, pgtype.Int8OID, []any{"x"}},
		"a number for a text":  {text, pgtype.Int8OID, []any{int64(1)}},
		"a smaller number":     {number, pgtype.Int8OID, []any{int32(1)}},
		"too few":              {number, pgtype.Int8OID, nil},
		"a text for an answer": {number, pgtype.TextOID, []any{int64(1)}},
		"nothing":              {number, pgtype.Int8OID, []any{nil}},
	} {
		sd := &pgconn.StatementDescription{ParamOIDs: c.params, Fields: []pgconn.FieldDescription{{DataTypeOID: c.result}}}
		if _, ok := writeSmall(&pgx.ExtendedQueryBuilder{}, nil, sd, c.args); ok {
			t.Errorf("%s is taken for small", name)
		}
	}
}

// What is read the short way is what pgx reads, or it is left to pgx.
func TestSmall_AsPgxReads(t *testing.T) {
	types := pgtype.NewMap()
	for _, c := range []struct {
		oid uint32
		v   []byte
	}{
		{pgtype.Int8OID, []byte{0xff, 1, 2, 3, 4, 5, 6, 7}}, {pgtype.Int8OID, nil}, {pgtype.Int8OID, []byte{1}},
		{pgtype.Int4OID, []byte{0, 0, 1, 2}}, {pgtype.BoolOID, []byte{1}}, {pgtype.BoolOID, []byte{0}}, {pgtype.BoolOID, nil},
	} {
		for _, into := range []func() any{func() any { return new(*int64) }, func() any { return new(int64) }, func() any { return new(uint32) }, func() any { return new(bool) }} {
			want, got := into(), into()
			err := types.Scan(c.oid, pgtype.BinaryFormatCode, c.v, want)
			if readSmall(c.oid, c.v, got) && (err != nil || !reflect.DeepEqual(got, want)) {
				t.Errorf("type %d, % x into %T: %v, want %v, %v", c.oid, c.v, got, got, want, err)
			}
		}
	}
	var token *int64
	if !readSmall(pgtype.Int8OID, []byte{0, 0, 0, 0, 0, 0, 1, 2}, &token) || *token != 258 {
		t.Errorf("a token is read as %v", token)
	}
}
