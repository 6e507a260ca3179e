package engine

import (
	"os"
	"strconv"
	"strings"
)

// MemoryLimit is the memory that this process may use, in bytes: the cgroup's limit (v2 memory.max, else v1
// limit_in_bytes), or 0 if there is none.
func MemoryLimit() int64 { return memoryLimit("/") }

func memoryLimit(root string) int64 {
	paths := []string{}
	if b, err := os.ReadFile(root + "proc/self/cgroup"); err == nil {
		for line := range strings.Lines(string(b)) {
			parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
			if len(parts) != 3 {
				continue
			}
			switch {
			case parts[0] == "0":
				paths = append(paths, root+"sys/fs/cgroup"+parts[2]+"/memory.max")
			case strings.Contains(","+parts[1]+",", ",memory,"):
				paths = append(paths, root+"sys/fs/cgroup/memory"+parts[2]+"/memory.limit_in_bytes")
			}
		}
	}
	paths = append(paths, root+"sys/fs/cgroup/memory.max", root+"sys/fs/cgroup/memory/memory.limit_in_bytes")
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
		if err != nil || n <= 0 || n >= 1<<60 { // "max", or v1's way to say unlimited
			continue
		}
		return n
	}
	return 0
}
