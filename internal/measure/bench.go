package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// bound is a figure that a benchmark reports, and what it must not pass.
type bound struct {
	metric string // the unit that the benchmark reports it under
	most   float64
	text   string
}

// suite is one run of go test -bench.
type suite struct {
	pkg    string
	bench  string
	bounds []bound
}

// bench runs each of suites count times and writes the head of the document.
func bench(count int) error {
	rows, err := table(suites, count)
	if err != nil {
		return err
	}
	return revise(func(doc string) string { return "# Benchmarks\n\n" + about("make bench", count) + rows + sections(doc) })
}

// benchSizes does so with sizes, and writes the section of theirs.
func benchSizes(count int) error {
	rows, err := table(sizes, count)
	if err != nil {
		return err
	}
	return revise(func(doc string) string { return withSection(doc, "Sizes", about("make bench-sizes", count)+rows) })
}

// about says how the rows below it were seen.
func about(command string, count int) string {
	return fmt.Sprintf("By `%s`; median of %d runs, with the least and the greatest. %s\nA ratio is to a baseline of the same run.\n\n", command, count, machine())
}

// table runs every suite count times.
func table(suites []suite, count int) (string, error) {
	var rows strings.Builder
	rows.WriteString("| what | goal | median | spread | |\n|---|---|---|---|---|\n")
	for _, s := range suites {
		out, err := goTest("-run", "-", "-benchmem", "-benchtime", "3s", "-bench", s.bench, "-timeout", "60m", "-count", strconv.Itoa(count), s.pkg)
		if err != nil {
			return "", err
		}
		values := metrics(out)
		for _, b := range s.bounds {
			row, err := b.row(values[b.metric])
			if err != nil {
				return "", err
			}
			rows.WriteString(row)
		}
	}
	return rows.String(), nil
}

// revise rewrites the document.
func revise(to func(doc string) string) error {
	old, err := os.ReadFile(benchmarks)
	if err != nil {
		return err
	}
	return os.WriteFile(benchmarks, []byte(to(string(old))), 0o644)
}

const benchmarks = "docs/benchmarks.md"

// sections is what others write into the document, from its first "## " on.
func sections(doc string) string {
	_, rest, found := strings.Cut(doc, "\n## ")
	if !found {
		return ""
	}
	return "\n## " + rest
}

func (b bound) row(v []float64) (string, error) {
	if len(v) == 0 {
		return "", fmt.Errorf("no benchmark reported %q", b.metric)
	}
	slices.Sort(v)
	median := v[len(v)/2]
	verdict := "kept"
	if median > b.most {
		verdict = "**missed**"
	}
	return fmt.Sprintf("| %s | ≤ %s | %s | %s – %s | %s |\n", b.text, num(b.most), num(median), num(v[0]), num(v[len(v)-1]), verdict), nil
}

// num prints three digits, and thousands in full.
func num(f float64) string {
	if f >= 1000 {
		return strconv.FormatFloat(f, 'f', 0, 64)
	}
	return strconv.FormatFloat(f, 'g', 3, 64)
}

// metrics collects the figures of a go test -bench run by their units.
func metrics(out string) map[string][]float64 {
	values := map[string][]float64{}
	for line := range strings.Lines(out) {
		if !strings.HasPrefix(line, "Benchmark") {
			continue
		}
		f := strings.Fields(line)
		for i := 2; i+1 < len(f); i += 2 {
			if v, err := strconv.ParseFloat(f[i], 64); err == nil {
				values[f[i+1]] = append(values[f[i+1]], v)
			}
		}
	}
	return values
}
