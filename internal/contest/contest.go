// Package contest lets a benchmark say how one side did beside another when both
// ran in turns: the ratio with its interval, figures for people, and the section
// of a document that they go into.
package contest

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// Ratio is ours to theirs, round by round, with the interval in which it lies
// with 95 %. Both have a positive figure for each round, and there is at least
// one; of a single round the interval is without end.
func Ratio(ours, theirs []float64) (mid, low, high float64) {
	logs := make([]float64, len(ours))
	for i := range logs {
		logs[i] = math.Log(ours[i] / theirs[i])
	}
	m, half := Interval(logs)
	return math.Exp(m), math.Exp(m - half), math.Exp(m + half)
}

// Num prints three digits, and thousands in full.
func Num(f float64) string {
	if f >= 1000 {
		return strconv.FormatFloat(f, 'f', 0, 64)
	}
	return strconv.FormatFloat(f, 'g', 3, 64)
}

// Mean is the sum of v by its length, which is not 0.
func Mean(v []float64) float64 {
	var sum float64
	for _, x := range v {
		sum += x
	}
	return sum / float64(len(v))
}

// Median is the middle of v, which is not empty.
func Median(v []float64) float64 {
	sorted := slices.Sorted(slices.Values(v))
	return sorted[len(sorted)/2]
}

// Interval is the mean of v and half the width of its 95 % interval, by
// Student's distribution.
func Interval(v []float64) (mean, half float64) {
	mean = Mean(v)
	if len(v) < 2 {
		return mean, math.Inf(1)
	}
	var squares float64
	for _, x := range v {
		squares += (x - mean) * (x - mean)
	}
	n := float64(len(v))
	return mean, student(len(v)-1) * math.Sqrt(squares/(n-1)/n)
}

// student is the 97.5 % quantile of Student's distribution.
func student(freedom int) float64 {
	table := []float64{12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
		2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042}
	if freedom <= len(table) {
		return table[freedom-1]
	}
	return 2.042 // at 30; it goes down to 1.96, so the interval is a little too wide
}

// Replace puts a section in the place of the one with the same heading, or at
// the end. A section goes from its heading to the next "## ".
func Replace(doc, heading, section string) string {
	before, rest, found := strings.Cut(doc, heading+"\n")
	if !found {
		return strings.TrimRight(doc, "\n") + "\n\n" + section
	}
	_, after, more := strings.Cut(rest, "\n## ")
	if !more {
		return before + section
	}
	return before + section + "\n## " + after
}
