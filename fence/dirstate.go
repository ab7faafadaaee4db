package fence

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strconv"
	"strings"
)

// A state file is text, one field a line, with a checksum of all before it:
//
//	holdfast fence 1
//	resource "accounts/7"
//	exclusive 101
//	shared 0
//	used
//	crc32c 0a1b2c3d
const stateFormat = "holdfast fence 1"

// maxStateFile is more than the longest state takes, in bytes.
const maxStateFile = 1 << 17

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func encodeState(resource string, s state) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s\nresource %q\nexclusive %d\nshared %d\nused", stateFormat, resource, s.exclusive, s.shared)
	for _, token := range s.used {
		fmt.Fprintf(&b, " %d", token)
	}
	b.WriteByte('\n')
	return append(b.Bytes(), sumLine(b.Bytes())...)
}

// sumLine is the last line of a file that begins with data.
func sumLine(data []byte) string {
	return fmt.Sprintf("crc32c %08x\n", crc32.Checksum(data, castagnoli))
}

// decodeState accepts exactly what encodeState writes for that resource; its
// error is the reason alone.
func decodeState(resource string, data []byte) (state, error) {
	if err := checkSum(data); err != nil {
		return state{}, err
	}
	lines := strings.Split(string(data), "\n")
	if lines[0] != stateFormat {
		return state{}, fmt.Errorf("its format %.40q is unknown to this version", lines[0])
	}
	if len(lines) != 7 {
		return state{}, fmt.Errorf("it has %d lines, not 6", len(lines)-1)
	}
	if want := "resource " + strconv.Quote(resource); lines[1] != want {
		return state{}, fmt.Errorf("it says %.600q, not %.600q", lines[1], want)
	}
	s, err := parseState(lines)
	if err == nil && !bytes.Equal(encodeState(resource, s), data) {
		err = errors.New("its numbers are not written as this package writes them")
	}
	return s, err
}

// checkSum tells a torn or flipped file from a good one.
func checkSum(data []byte) error {
	if len(data) == 0 {
		return errors.New("it is empty")
	}
	if len(data) > maxStateFile {
		return fmt.Errorf("it is longer than %d bytes", maxStateFile)
	}
	at := bytes.LastIndex(data, []byte("\ncrc32c ")) + 1
	if at == 0 || data[len(data)-1] != '\n' {
		return errors.New("it is cut short: no whole checksum line at its end")
	}
	if string(data[at:]) != sumLine(data[:at]) {
		return errors.New("its checksum does not match")
	}
	return nil
}

func parseState(lines []string) (s state, err error) {
	if s.exclusive, err = stateNumber(lines[2], "exclusive "); err != nil {
		return state{}, err
	}
	if s.shared, err = stateNumber(lines[3], "shared "); err != nil {
		return state{}, err
	}
	list, ok := strings.CutPrefix(lines[4], "used")
	if !ok {
		return state{}, errors.New(`line 5 does not begin with "used"`)
	}
	for field := range strings.FieldsSeq(list) {
		token, err := stateNumber(field, "")
		if err != nil {
			return state{}, err
		}
		s.used = append(s.used, token)
	}
	return s, s.sane()
}

func stateNumber(line, prefix string) (Token, error) {
	text, ok := strings.CutPrefix(line, prefix)
	n, err := strconv.ParseUint(text, 10, 64)
	if !ok || err != nil || n > MaxToken {
		return 0, fmt.Errorf("%.40q is not %q and a number below 2^53", line, prefix)
	}
	return Token(n), nil
}

// sane refuses what record never leaves behind.
func (s *state) sane() error {
	n := len(s.used)
	ascending := slices.IsSorted(s.used) && len(slices.Compact(slices.Clone(s.used))) == n
	if n > maxUsed || !ascending || n > 0 && (s.used[0] <= s.exclusive || s.used[n-1] > s.shared) {
		return errors.New("its list of used tokens is impossible")
	}
	return nil
}
