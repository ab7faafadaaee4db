package child

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// order is one line that the warden is told.
type order struct {
	word    string // mark, holder, group, until, ending, spare or end
	mark    string
	process int // the first process, or the first of the command's group
	left    time.Duration
}

func (o order) String() string {
	switch o.word {
	case "mark":
		return fmt.Sprintf("mark %s\n", o.mark)
	case "holder", "group":
		return fmt.Sprintf("%s %d\n", o.word, o.process)
	case "until":
		return fmt.Sprintf("until %d\n", int64(o.left))
	}
	return o.word + "\n"
}

// parseOrder reads a line. A group below 2 is refused: killing it would kill
// everything. The holder may be the first process, as it is in a container.
func parseOrder(line string) (order, error) {
	word, arg, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
	o := order{word: word}
	n, err := strconv.ParseInt(arg, 10, 64)
	switch {
	case (word == "end" || word == "ending" || word == "spare") && arg == "":
		return o, nil
	case word == "mark" && arg != "":
		o.mark = arg
		return o, nil
	case (word == "holder" && n > 0 || word == "group" && n > 1) && err == nil && n < 1<<31:
		o.process = int(n)
		return o, nil
	case word == "until" && err == nil:
		o.left = time.Duration(n)
		return o, nil
	}
	return order{}, fmt.Errorf("the warden was told %q, which it does not know", line)
}
