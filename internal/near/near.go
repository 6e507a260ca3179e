// Package near finds what a mistyped word may have meant.
package near

import (
	"strings"
	"unicode/utf8"
)

// Word finds the candidate that a mistyped word may have meant: the one with the least edit distance (a swap of
// neighbours counts one), letters compared without case, if the distance is at most a third of the word's length, at
// least 1. Of equal ones it is the first.
func Word(word string, candidates []string) (string, bool) {
	best, found := "", false
	limit := max(1, utf8.RuneCountInString(word)/3)
	w := []rune(strings.ToLower(word))
	for _, c := range candidates {
		if d := distance(w, []rune(strings.ToLower(c)), limit); d <= limit {
			best, found, limit = c, true, d-1
		}
	}
	return best, found
}

// distance is the number of insertions, deletions, replacements and swaps of neighbours from a to b, or more than limit
// as soon as it is known to be.
func distance(a, b []rune, limit int) int {
	if limit < 0 || len(a)-len(b) > limit || len(b)-len(a) > limit {
		return limit + 1
	}
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		least := i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
			least = min(least, row[j])
		}
		if least > limit+1 {
			return limit + 1
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
