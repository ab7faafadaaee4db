package redishold

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/holdfast-io/holdfast/driver"
)

// reader takes the fields of a script's answer, or of an event, one after the
// other. The first thing that is wrong stays in err; what follows is zero.
type reader struct {
	rest []string
	err  error
}

var errShort = errors.New("the server's answer is too short: another version wrote it")

func (r *reader) empty() bool { return r.err != nil || len(r.rest) == 0 }

func (r *reader) text() string {
	if r.err == nil && len(r.rest) == 0 {
		r.err = errShort
	}
	if r.err != nil {
		return ""
	}
	s := r.rest[0]
	r.rest = r.rest[1:]
	return s
}

func (r *reader) int() int64 {
	s := r.text()
	if r.err != nil {
		return 0
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		r.err = fmt.Errorf("the server's answer has %q where a number belongs", s)
	}
	return n
}

func (r *reader) uint() uint64 { return uint64(r.int()) }

func (r *reader) token() driver.Token { return driver.Token(r.int()) }

func (r *reader) revision() driver.Revision { return driver.Revision(r.int()) }

func (r *reader) flag() bool { s := r.text(); return s != "" && s != "0" }

func (r *reader) millis() time.Duration { return time.Duration(r.int()) * time.Millisecond }

func (r *reader) session() (id driver.SessionID) {
	if s := r.text(); s != "" {
		if n, err := hex.Decode(id[:], []byte(s[:min(len(s), 2*len(id))])); err != nil || n != len(id) {
			r.err = fmt.Errorf("the server's answer has %q where a session belongs", s)
		}
	}
	return id
}

// claims takes a list of claims with its length before it.
func (r *reader) claims(name string, kind driver.ResourceKind) []driver.Claim {
	var list []driver.Claim
	for n := r.int(); n > 0 && r.err == nil; n-- {
		list = append(list, driver.Claim{
			Name: name, Kind: kind, Mode: driver.Mode(r.int()), Weight: r.int(), Token: r.token(), Owner: r.text(), Meta: r.text(),
			Session: r.session(), Value: []byte(r.text()), Created: r.revision(), Modified: r.revision(), Version: r.uint(),
			Held: r.millis(), ExpiresIn: r.millis(), Revoked: r.flag(),
		})
	}
	return list
}

// kv takes a key.
func (r *reader) kv() driver.KV {
	return driver.KV{
		Key: r.text(), Value: []byte(r.text()), Created: r.revision(), Modified: r.revision(), Version: r.uint(),
		Session: r.session(), ExpiresIn: r.millis(),
	}
}
