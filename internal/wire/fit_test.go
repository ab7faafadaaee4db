package wire_test

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/wire"
)

// A status is as long as headers may be, at most, and one that fits is whole.
func TestStatus_Fits(t *testing.T) {
	long := strings.Repeat("ä", 4000)
	holder := driver.Claim{Name: long[:512], Owner: long[:512], Meta: long[:4096], Value: make([]byte, 4096), Token: 1 << 52}
	for what, err := range map[string]error{
		"an error of ours":   &driver.Error{Op: "acquire", Name: long[:512], Kind: driver.ErrHeld, Holders: []driver.Claim{holder, holder, holder}, Err: errors.New(long)},
		"another":            errors.New(long),
		"many small holders": &driver.Error{Op: "acquire", Name: "x", Kind: driver.ErrHeld, Holders: make([]driver.Claim, 1000)},
	} {
		st := wire.Status(err)
		const each = 3 // bytes of a header for one that is not ASCII
		if n := each*len(st.Message()) + proto.Size(st.Proto())*4/3; n > 8000 {
			t.Errorf("%s: the status takes %d bytes of headers", what, n)
		}
	}
	small := driver.Claim{Owner: "w1", Meta: "m", Value: []byte("v")}
	f := wire.FailureOf(wire.Status(&driver.Error{Kind: driver.ErrHeld, Holders: []driver.Claim{small, small}}))
	if len(f.Holders) != 2 || f.Holders[1].Meta != "m" || string(f.Holders[1].Value) != "v" {
		t.Errorf("of two small holders it tells %v", f.Holders)
	}
}
