package statestore

import (
	"strings"
	"testing"
)

func TestCanRead(t *testing.T) {
	for _, c := range []struct{ was, now, want string }{
		{"int64", "int64", ""},
		{"int32", "int64", ""},
		{"int64", "int32", "stored as int64, and is now int32"},
		{"uint8", "int64", "stored as uint8"},
		{"float32", "float64", ""},
		{"string", "int64", "stored as string"},
		{"struct{a int64;b string}", "struct{b string;c bool}", ""},
		{"struct{a int64}", "struct{a string}", "field a: stored as int64, and is now string"},
		{"struct{a struct{b int64}}", "struct{a struct{b bytes}}", "field a.b: stored as int64"},
		{"[]int32", "[]int64", ""},
		{"[2]int32", "[3]int32", "stored as [2]int32"},
		{"map[string]int64", "map[int64]int64", "[key]"},
		{"own codec v1", "int64", "cannot be read"},
	} {
		err := CanRead(c.now, c.was)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s read as %s: %v", c.was, c.now, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s read as %s: %v, want %q", c.was, c.now, err, c.want)
		}
	}
}
