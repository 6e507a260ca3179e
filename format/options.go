package format

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace-stream/millrace/internal/near"
	"github.com/millrace-stream/millrace/row"
)

// Option says what an option of a connector or of a format is: what a table may set in WITH (...). The reference is made of
// these, and what a table sets is checked against them.
type Option struct {
	// Name is the whole name, without the prefix that a format has; a name that ends in * stands for all that begin so.
	Name string
	// Kind is what its value must be.
	Kind OptionKind
	// Default is the value where a table says nothing; "" = none.
	Default string
	// Values are all that an Enum may be.
	Values []string
	// Required says that a table must set it.
	Required bool
	// Doc is what it does, in a sentence or two.
	Doc string
	// NoEffect is why it has no effect here, in a clause: it is taken since scripts of Flink have it. "" = it has one.
	NoEffect string
}

// OptionKind is a type of values of options.
type OptionKind int

// The kinds of options.
const (
	Text OptionKind = iota
	Boolean
	Integer
	Duration // 10 s, 1 min, 500 ms; as in Flink
	Enum     // one of Values, in any case
	List     // values with ; between them
	Map      // key:value pairs with , between them
)

// Options are the values that a table sets, checked against what there is.
type Options struct {
	specs  []Option
	values map[string]string
	prefix string
}

// ReadOptions checks the options of a table whose names begin with prefix, such as "json.", against specs. The error
// names the first option, in the order of names, that is unknown, missing or has a wrong value, and what would be right.
func ReadOptions(prefix string, values map[string]string, specs []Option) (*Options, error) {
	o := &Options{specs, values, prefix}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		rest, ok := strings.CutPrefix(name, prefix)
		if !ok {
			continue
		}
		s := o.spec(rest)
		if s == nil {
			names := o.names()
			if n, ok := near.Word(name, names); ok {
				return nil, fmt.Errorf("option '%s' is unknown; did you mean '%s'?", name, n)
			}
			return nil, fmt.Errorf("option '%s' is unknown; there are: %s", name, strings.Join(names, ", "))
		}
		if err := s.check(values[name]); err != nil {
			return nil, fmt.Errorf("option '%s' = '%s': %w", name, values[name], err)
		}
	}
	for _, s := range specs {
		if _, ok := values[prefix+s.Name]; s.Required && !ok {
			return nil, fmt.Errorf("option '%s' is missing: %s", prefix+s.Name, s.Doc)
		}
	}
	return o, nil
}

func (o *Options) names() []string {
	var names []string
	for _, s := range o.specs {
		names = append(names, o.prefix+s.Name)
	}
	return names
}

func (o *Options) spec(name string) *Option {
	for i := range o.specs {
		s := &o.specs[i]
		if p, ok := strings.CutSuffix(s.Name, "*"); s.Name == name || ok && strings.HasPrefix(name, p) && len(name) > len(p) {
			return s
		}
	}
	return nil
}

func (s *Option) check(v string) error {
	switch s.Kind {
	case Boolean:
		if _, err := strconv.ParseBool(strings.ToLower(v)); err != nil {
			return fmt.Errorf("must be 'true' or 'false'")
		}
	case Integer:
		if _, err := strconv.ParseInt(v, 10, 64); err != nil {
			return fmt.Errorf("must be a whole number")
		}
	case Duration:
		if _, err := row.ParseDuration(v); err != nil {
			return err
		}
	case Enum:
		if !slices.ContainsFunc(s.Values, func(x string) bool { return strings.EqualFold(x, v) }) {
			return fmt.Errorf("must be one of %s", strings.Join(s.Values, ", "))
		}
	case Map:
		for _, pair := range strings.Split(v, ",") {
			if strings.TrimSpace(v) != "" && !strings.Contains(pair, ":") {
				return fmt.Errorf("must be key:value pairs with , between them")
			}
		}
	}
	return nil
}

// Has says whether the table sets the option.
func (o *Options) Has(name string) bool { _, ok := o.values[o.prefix+name]; return ok }

// Text is the value of an option, or its default. An option that is none of the specs is a fault of the caller.
func (o *Options) Text(name string) string {
	s := o.spec(name)
	if s == nil {
		panic("format: no option " + o.prefix + name)
	}
	v, ok := o.values[o.prefix+name]
	if !ok {
		v = s.Default
	}
	if s.Kind == Enum {
		for _, x := range s.Values {
			if strings.EqualFold(x, v) {
				return x
			}
		}
	}
	return v
}

// Bool is the value of a Boolean.
func (o *Options) Bool(name string) bool {
	b, _ := strconv.ParseBool(strings.ToLower(o.Text(name)))
	return b
}

// Int is the value of an Integer.
func (o *Options) Int(name string) int64 { n, _ := strconv.ParseInt(o.Text(name), 10, 64); return n }

// Duration is the value of a Duration.
func (o *Options) Duration(name string) time.Duration {
	d, _ := row.ParseDuration(o.Text(name))
	return d
}

// List are the values of a List.
func (o *Options) List(name string) []string {
	var list []string
	for _, v := range strings.Split(o.Text(name), ";") {
		if v = strings.TrimSpace(v); v != "" {
			list = append(list, v)
		}
	}
	return list
}

// Map are the pairs of a Map.
func (o *Options) Map(name string) map[string]string {
	m := map[string]string{}
	for _, pair := range strings.Split(o.Text(name), ",") {
		if k, v, ok := strings.Cut(pair, ":"); ok {
			m[strings.TrimSpace(k)] = strings.TrimSpace(v)
		}
	}
	return m
}

// Prefixed are the options that begin with prefix, such as "properties.", without it.
func (o *Options) Prefixed(prefix string) map[string]string {
	m := map[string]string{}
	for name, v := range o.values {
		if rest, ok := strings.CutPrefix(name, o.prefix+prefix); ok {
			m[rest] = v
		}
	}
	return m
}
