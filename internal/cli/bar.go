package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
)

// bar is one line that people see change; where nobody looks it says nothing.
type bar struct{ w io.Writer }

func newBar(f *os.File) *bar {
	if !isTerminal(f) {
		return &bar{io.Discard}
	}
	return &bar{f}
}

// barWidth is what fits beside a name and a rate in 80 columns.
const barWidth = 24

// part shows how much of the whole is done, 0 to 1.
func (b *bar) part(done float64, text string) {
	full := int(barWidth * min(max(done, 0), 1))
	b.text(fmt.Sprintf("[%s%s] %3.0f%% %s", strings.Repeat("=", full), strings.Repeat(" ", barWidth-full), 100*done, text))
}

func (b *bar) text(text string) { fmt.Fprintf(b.w, "\r\x1b[K%.79s", text) }

func (b *bar) clear() { fmt.Fprint(b.w, "\r\x1b[K") }
