//go:build canary

package failpoint

import "sync/atomic"

var planted atomic.Value // Canary

// Plant plants a canary in place of the one before; "" plants none.
func Plant(c Canary) { planted.Store(c) }

// Planted says whether a canary is planted.
func Planted(c Canary) bool { return planted.Load() == c }
