package cli

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// size is a flag in bytes: 512MiB, 2GiB, or a plain number.
type size int64

// leastData is the least that --max-data can be: the log files, and what is kept of the
// log for other nodes.
const leastData size = 256 << 20

// units are those of sizes, the largest first.
var units = []struct {
	name string
	size int64
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

// Set is of pflag.Value.
func (s *size) Set(text string) error {
	number, unit := text, int64(1)
	for _, u := range units {
		if n, ok := strings.CutSuffix(text, u.name); ok {
			number, unit = n, u.size
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/unit {
		return fmt.Errorf("%q is no size: write bytes, or a number with KiB, MiB, GiB or TiB such as 512MiB", text)
	}
	*s = size(n * unit)
	return nil
}

// String is of pflag.Value.
func (s size) String() string {
	for _, u := range units {
		if s != 0 && int64(s)%u.size == 0 {
			return strconv.FormatInt(int64(s)/u.size, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// Type is of pflag.Value.
func (s size) Type() string { return "size" }
