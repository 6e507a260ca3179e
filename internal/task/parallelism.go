package task

import "fmt"

// maxDefaultParallelism bounds the default number of subtasks of a sub-topology: each is one transactional producer.
const maxDefaultParallelism = 16

// WithinParallelism is the largest number of subtasks up to wanted that ResolveParallelism takes; 0 = its default.
func WithinParallelism(wanted int, partitions []int32) int {
	for n := wanted; n > 1; n-- {
		if _, err := ResolveParallelism(n, partitions); err == nil {
			return n
		}
	}
	return min(wanted, 1)
}

// ResolveParallelism gives the number of subtasks of a sub-topology whose inputs have the given partition counts.
// Subtask k owns the partitions p with p mod S = k of every input, so S must divide every count: otherwise equal keys
// of two inputs meet on different subtasks. wanted 0 gives the largest common divisor that is <= 16.
func ResolveParallelism(wanted int, partitions []int32) (int, error) {
	if wanted < 0 {
		return 0, fmt.Errorf("resolve parallelism: %d is negative", wanted)
	}
	if len(partitions) == 0 {
		return 0, fmt.Errorf("resolve parallelism: no inputs")
	}
	g := int32(0)
	for _, p := range partitions {
		if p <= 0 {
			return 0, fmt.Errorf("resolve parallelism: an input has %d partitions", p)
		}
		for a, b := g, p; ; a, b = b, a%b {
			if b == 0 {
				g = a
				break
			}
		}
	}
	if wanted > 0 {
		if int(g)%wanted != 0 {
			return 0, fmt.Errorf("resolve parallelism: %d does not divide the partition counts %v of all inputs; use a divisor of %d", wanted, partitions, g)
		}
		return wanted, nil
	}
	for s := min(int(g), maxDefaultParallelism); s > 1; s-- {
		if int(g)%s == 0 {
			return s, nil
		}
	}
	return 1, nil
}
