package connector

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/internal/near"
)

// Options checks the options of a table that are its connector's: all but 'connector' and 'late-records', which every table
// has, and those that begin with one of prefixes, such as that of its format, "json.".
func Options(values map[string]string, specs []format.Option, prefixes ...string) (*format.Options, error) {
	own := maps.Clone(values)
	maps.DeleteFunc(own, func(name, _ string) bool {
		return name == "connector" || name == "late-records" || slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
	})
	return format.ReadOptions("", own, specs)
}

// NoEffect are the options of a table that have no effect: those of specs that say so and are set to something else than what
// is done anyway.
func NoEffect(values map[string]string, specs []format.Option) (unused []Unused) {
	for _, s := range specs {
		if v, ok := values[s.Name]; ok && s.NoEffect != "" && !strings.EqualFold(v, s.Default) {
			unused = append(unused, Unused{"'" + s.Name + "' = '" + v + "'", s.NoEffect})
		}
	}
	return unused
}

// Format makes the format that an option of a table names; prefix stands before the names of its options, "key." of
// key.json.fail-on-missing-field. The error says which format or option is wrong.
func Format(formats format.RowFormats, values map[string]string, prefix, name string) (format.RowFormat, format.RowFormatSpec, error) {
	spec, ok := formats[name]
	if !ok {
		names := slices.Sorted(maps.Keys(formats))
		if n, ok := near.Word(name, names); ok {
			return nil, spec, fmt.Errorf("format '%s' is unknown; did you mean '%s'?", name, n)
		}
		return nil, spec, fmt.Errorf("format '%s' is unknown; there are: %s", name, strings.Join(names, ", "))
	}
	o, err := format.ReadOptions(prefix+name+".", values, spec.Options)
	if err != nil {
		return nil, spec, err
	}
	f, err := spec.New(o)
	return f, spec, err
}
