package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/holdfast-io/holdfast"
)

// printer writes what a command has to say, as text or as JSON: one object a
// line.
type printer struct {
	out, err io.Writer
	json     bool
}

func (a *app) print() *printer { return &printer{out: a.out, err: a.errOut, json: a.json} }

// value prints v as JSON, or the text.
func (p *printer) value(v any, format string, args ...any) error {
	if p.json {
		return encode(p.out, v)
	}
	_, err := fmt.Fprintf(p.out, format+"\n", args...)
	return err
}

// table prints v as JSON, or the rows under their headings.
func (p *printer) table(v any, head []string, rows [][]string) error {
	if p.json {
		return encode(p.out, v)
	}
	w := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{head}, rows...) {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	return w.Flush()
}

// digits is a number for JSON that may be above 2^53, where many readers lose
// digits: ids, counters and sequences are strings, as in the JSON of protobuf.
// Tokens and revisions stay below and are numbers.
func digits(n uint64) string { return strconv.FormatUint(n, 10) }

func encode(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// note tells something beside a command's output.
func (p *printer) note(text string) {
	if p.json {
		_ = encode(p.err, map[string]string{"note": text})
		return
	}
	fmt.Fprintln(p.err, "holdfast:", text)
}

// errorJSON is an error for programs.
type errorJSON struct {
	Message    string      `json:"message"`
	Kind       string      `json:"kind,omitempty"`
	Op         string      `json:"op,omitempty"`
	Name       string      `json:"name,omitempty"`
	Hint       string      `json:"hint,omitempty"`
	ExitCode   int         `json:"exit_code"`
	RetryAfter float64     `json:"retry_after_seconds,omitempty"`
	Holders    []claimJSON `json:"holders,omitempty"`
	Waiting    int         `json:"waiting,omitempty"`
}

// failure tells what went wrong and what to do next.
func (p *printer) failure(f *failure) {
	text := strings.TrimPrefix(f.err.Error(), "holdfast: ")
	if p.json {
		_ = encode(p.err, map[string]errorJSON{"error": describe(f, text)})
		return
	}
	fmt.Fprintln(p.err, "error:", text)
	if f.hint != "" {
		fmt.Fprintln(p.err, "hint:", f.hint)
	}
}

func describe(f *failure, text string) errorJSON {
	j := errorJSON{Message: text, Hint: f.hint, ExitCode: f.code}
	e, ok := errors.AsType[*holdfast.Error](f.err)
	if !ok {
		return j
	}
	j.Op, j.Name, j.Waiting, j.RetryAfter = e.Op, e.Name, e.Waiting, e.RetryAfter.Seconds()
	if e.Kind != nil {
		j.Kind = e.Unwrap()[0].Error()
	}
	for _, c := range e.Holders {
		j.Holders = append(j.Holders, claimOf(c))
	}
	return j
}

// span is a duration for people.
func span(d time.Duration) string {
	switch {
	case d == 0:
		return "-"
	case d < time.Second:
		return d.Round(time.Microsecond).String()
	}
	return d.Round(100 * time.Millisecond).String()
}

// dash stands for nothing in a table.
func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
