package guardfile

import "strings"

// nearest is the word that a mistyped one may have meant, or nothing: at most one slip
// for every four letters and one more. Case and the kind of dash do not count.
func nearest(word string, known []string) string {
	if len(word) > 64 {
		return ""
	}
	word = strings.NewReplacer("-", "_", ".", "_", " ", "_").Replace(strings.ToLower(word))
	best, slips := "", 2+len(word)/4
	for _, k := range known {
		if d := distance(word, k); d < slips && d < len(k) {
			best, slips = k, d
		}
	}
	return best
}

// distance counts the bytes to insert, delete, replace or swap with their neighbour.
func distance(a, b string) int {
	var before, last []int
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before, last, row = last, row, make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			row[j+1] = min(last[j+1]+1, row[j]+1, last[j]+cost(a[i] != b[j]))
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
	}
	return row[len(b)]
}

func cost(differ bool) int {
	if differ {
		return 1
	}
	return 0
}
