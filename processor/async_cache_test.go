package processor

import (
	"fmt"
	"testing"
	"time"
)

// TestAsyncCache says what a cache still has after puts and gets at given times.
func TestAsyncCache(t *testing.T) {
	cost := func(rows []string) int { return len(rows) }
	two := []string{"x", "y"}
	for name, test := range map[string]struct {
		o    AsyncCache[[]string]
		do   func(c *asyncCache[[]string])
		at   int64
		want string
	}{
		"room for the newest": {AsyncCache[[]string]{Size: 3, Cost: cost}, func(c *asyncCache[[]string]) {
			c.put("a", two, 0)
			c.put("b", two, 1)
			c.put("c", two[:1], 2)
		}, 3, "b c"},
		"put again counts once": {AsyncCache[[]string]{Size: 3, Cost: cost}, func(c *asyncCache[[]string]) {
			c.put("a", two, 0)
			c.put("a", two[:1], 1)
			c.put("b", two, 2)
		}, 3, "a b"},
		"what costs nothing is not kept": {AsyncCache[[]string]{Size: 3, Cost: cost}, func(c *asyncCache[[]string]) {
			c.put("a", two, 0)
			c.put("a", nil, 1)
			c.put("b", two, 1)
			c.put("c", two[:1], 1)
		}, 3, "b c"},
		"after write": {AsyncCache[[]string]{AfterWrite: 10 * time.Millisecond}, func(c *asyncCache[[]string]) {
			c.put("a", two, 0)
			c.put("b", two, 1)
			c.get("a", 9)
		}, 10, "b"},
		"after access": {AsyncCache[[]string]{AfterAccess: 10 * time.Millisecond}, func(c *asyncCache[[]string]) {
			c.put("a", two, 0)
			c.put("b", two, 0)
			c.get("a", 9)
		}, 10, "a"},
	} {
		var c asyncCache[[]string]
		c.init(test.o)
		test.do(&c)
		got := ""
		for _, k := range []string{"a", "b", "c"} {
			if _, ok := c.get(k, test.at); ok {
				got += fmt.Sprintf(" %s", k)
			}
		}
		if got != " "+test.want {
			t.Errorf("%s: it has%s, want %s", name, got, test.want)
		}
	}
}
