//go:build !canary

package failpoint

// Planted says whether a canary is planted: never in a binary built without the tag canary.
func Planted(Canary) bool { return false }
