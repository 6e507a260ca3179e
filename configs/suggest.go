package configs

import "strings"

// suggest returns "; did you mean ...?" with the nearest of the known names, or where to find them.
func suggest(name string, known []string) string {
	const none = "; --help lists all"
	plain := strings.TrimLeft(name, "-")
	if len(plain) > 80 {
		return none
	}
	if hint, ok := hints[plain]; ok {
		prefix := name[:len(name)-len(plain)]
		return "; did you mean " + prefix + hint + "?"
	}
	best, distance := "", max(2, len(plain)/3)+1
	for _, k := range known {
		// Names that differ in case and punctuation only are nearest.
		if d := editDistance(fold(name), fold(k)); d < distance {
			best, distance = k, d
		}
	}
	if best == "" {
		// The last part of a name is often right where the sections are not: tls.ca-file.
		for _, k := range known {
			if len(fold(plain)) > 3 && strings.HasSuffix(fold(k), fold(plain)) {
				best = k
				break
			}
		}
	}
	if best == "" {
		return none
	}
	return "; did you mean " + best + "?"
}

func fold(s string) string {
	return strings.NewReplacer(".", "", "-", "", "_", "").Replace(strings.ToLower(s))
}

// editDistance counts insertions, deletions, replacements and swaps of neighbours.
func editDistance(a, b string) int {
	before, row, next := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		next[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			next[j+1] = min(row[j]+cost, row[j+1]+1, next[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				next[j+1] = min(next[j+1], before[j-1]+1)
			}
		}
		before, row, next = row, next, before
	}
	return row[len(b)]
}
