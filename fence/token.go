package fence

import (
	"fmt"
	"io/fs"
	"strconv"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-io/holdfast/driver"
)

// Token is a fencing token, as a hold has it: of two exclusive grants of one name
// the later has the greater.
type Token = driver.Token

// MaxToken is the greatest token, 2⁵³−1: what JSON numbers, JavaScript and
// database/sql carry without loss.
const MaxToken = 1<<53 - 1

// maxName is the longest name of a resource, in bytes.
const maxName = 512

// Mode is how the grant shares its resource.
type Mode = driver.Mode

// The modes: Exclusive for mutexes, writers and leaders, Shared for readers.
const (
	Exclusive = driver.Exclusive
	Shared    = driver.Shared
)

// Pass is what a writer shows at a gate: the token and mode of its grant, and
// the resource that was granted.
type Pass struct {
	Resource string // UTF-8, 1 to 512 bytes, no control characters
	Token    Token  // 1 to MaxToken
	Mode     Mode
}

// ParseToken reads a token from its decimal form, digits only, without leading
// zeros: so that one token has one spelling.
func ParseToken(s string) (Token, error) {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || strconv.FormatUint(n, 10) != s {
		return 0, driver.Errorf("parse token", "", fs.ErrInvalid,
			"%.40q is not a token; write the number in decimal, digits only", s)
	}
	token := Token(n)
	if err := checkToken(token); err != nil {
		return 0, driver.Errorf("parse token", "", fs.ErrInvalid, "%w", err)
	}
	return token, nil
}

// Int64 is the token as database/sql takes it; a uint64 with the high bit set
// would be refused there, with a message about bits. What is no token is
// fs.ErrInvalid.
func Int64(token Token) (int64, error) {
	if err := checkToken(token); err != nil {
		return 0, driver.Errorf("convert token", "", fs.ErrInvalid, "%w", err)
	}
	return int64(token), nil
}

func checkToken(token Token) error {
	switch {
	case token == 0:
		return fmt.Errorf("token 0 belongs to no grant; pass the token of the hold")
	case token > MaxToken:
		return fmt.Errorf("%d is not a token, they end below 2^53; pass the token of the hold as it is", token)
	}
	return nil
}

// check refuses what cannot have come from a grant, before anything changes.
func (p Pass) check(op string) error {
	err := checkName(p.Resource)
	if err == nil {
		err = checkToken(p.Token)
	}
	if err == nil && p.Mode != Exclusive && p.Mode != Shared {
		err = fmt.Errorf("mode %d is unknown; use fence.Exclusive or fence.Shared", p.Mode)
	}
	if err != nil {
		return driver.Errorf(op, p.Resource, fs.ErrInvalid, "%w", err)
	}
	return nil
}

func checkName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("the resource has no name")
	case len(name) > maxName:
		return fmt.Errorf("the resource's name has %d bytes, at most %d are allowed", len(name), maxName)
	case !utf8.ValidString(name):
		return fmt.Errorf("the resource's name is not UTF-8")
	}
	for _, r := range name {
		if unicode.IsControl(r) {
			return fmt.Errorf("the resource's name has the control character %U", r)
		}
	}
	return nil
}

// modeName is how errors, headers and answers spell a mode.
func modeName(m Mode) string {
	if m == Shared {
		return "shared"
	}
	return "exclusive"
}

func parseMode(s string) (Mode, error) {
	switch s {
	case "", "exclusive":
		return Exclusive, nil
	case "shared":
		return Shared, nil
	}
	return 0, fmt.Errorf("%.40q is not a mode; write exclusive or shared", s)
}
