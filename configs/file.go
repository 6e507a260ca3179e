package configs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// given is a value in the form in which a layer has it, and where it came from.
type given struct {
	value  any // string or, for lists of the file, []string
	origin string
}

// readFile reads the values of a YAML file. Sections may be nested or written with dots.
func readFile(path string) (map[string]given, []Fault) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, []Fault{{Origin: "file " + path, Problem: "read the file: " + cause(err)}}
	}
	return parseFile(path, content)
}

// parseFile reads the content of a file; path is for messages.
func parseFile(path string, content []byte) (map[string]given, []Fault) {
	r := fileReader{path: path, values: map[string]given{}}
	dec := yaml.NewDecoder(bytes.NewReader(content))
	var doc, more yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return r.values, nil // nothing but comments
	case err != nil:
		return nil, []Fault{{Origin: "file " + path, Problem: syntax(err)}}
	}
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		r.fault("", doc.Line, "one YAML document is wanted, there is another behind it")
	}
	if top := doc.Content[0]; top.Kind == yaml.MappingNode {
		r.section("", top)
	} else if top.Kind != yaml.ScalarNode || top.Tag != "!!null" {
		r.fault("", top.Line, "keys with values are wanted, such as brokers: kafka-1:9092")
	}
	return r.values, r.faults
}

// cause is the reason of a file error without the path, which the message has already.
func cause(err error) string {
	var pathErr *os.PathError
	if errors.As(err, &pathErr) {
		return pathErr.Err.Error()
	}
	return err.Error()
}

// syntax is the parser's complaint. The parser quotes unknown aliases, and those may be secrets without quotes.
func syntax(err error) string {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	if strings.Contains(text, "unknown anchor") {
		text = "a value without quotes must not begin with '*'"
	}
	return "read YAML: " + text + "; values with special characters want single quotes"
}

type fileReader struct {
	path   string
	values map[string]given
	faults []Fault
}

func (r *fileReader) origin(line int) string { return fmt.Sprintf("file %s:%d", r.path, line) }

func (r *fileReader) fault(key string, line int, format string, args ...any) {
	r.faults = append(r.faults, Fault{Key: key, Origin: r.origin(line), Problem: fmt.Sprintf(format, args...)})
}

// section reads the keys below a prefix. Messages never show values: behind a misspelt key there may be a secret.
func (r *fileReader) section(prefix string, node *yaml.Node) {
	for i := 0; i+1 < len(node.Content); i += 2 {
		name, value := node.Content[i], node.Content[i+1]
		full := prefix + name.Value
		switch {
		case name.Kind != yaml.ScalarNode || name.Tag == "!!merge":
			r.fault(strings.TrimSuffix(prefix, "."), name.Line, "plain keys are wanted, without anchors, merges and lists")
		case isSection(full):
			switch {
			case value.Kind == yaml.MappingNode:
				r.section(full+".", value)
			case value.Kind != yaml.ScalarNode || value.Tag != "!!null":
				r.fault(full, name.Line, "is a section: the keys below it are %s", strings.Join(below(full), ", "))
			}
		default:
			r.key(full, name.Line, value)
		}
	}
}

func (r *fileReader) key(name string, line int, value *yaml.Node) {
	k, ok := find(name)
	if !ok {
		known := keyNames()
		if value.Kind == yaml.MappingNode {
			known = sections()
		}
		r.fault(name, line, "unknown key%s", suggest(name, known))
		return
	}
	if was, twice := r.values[name]; twice {
		r.fault(name, line, "is given already in %s", was.origin)
		return
	}
	v := given{origin: r.origin(line)}
	switch {
	case value.Kind == yaml.SequenceNode && k.list():
		items := []string{}
		for _, item := range value.Content {
			s, problem := scalar(item)
			if problem != "" {
				r.fault(name, item.Line, "%s", problem)
				return
			}
			items = append(items, s)
		}
		v.value = items
	case value.Kind == yaml.SequenceNode:
		r.fault(name, line, "one value is wanted, not a list")
		return
	case value.Kind == yaml.MappingNode:
		r.fault(name, line, "a value is wanted, not keys below it")
		return
	default:
		s, problem := scalar(value)
		if problem != "" {
			r.fault(name, line, "%s", problem)
			return
		}
		v.value = s
	}
	r.values[name] = v
}

// scalar is the literal text of a value, whatever YAML would make of it: 007, 1e3, yes and 2024-01-01 stay as they are.
func scalar(node *yaml.Node) (text, problem string) {
	switch {
	case node.Kind == yaml.AliasNode:
		return "", "aliases are not supported; a value that begins with '*' wants quotes"
	case node.Kind != yaml.ScalarNode:
		return "", "plain values are wanted"
	case node.Style&yaml.TaggedStyle != 0:
		return "", "tags are not supported; a value that begins with '!' wants quotes"
	case node.Anchor != "":
		return "", "anchors are not supported; a value that begins with '&' wants quotes"
	case node.Tag == "!!null":
		return "", `there is no value: remove the key, or write '' if it is to be empty; a value that begins with '#' wants quotes`
	}
	return node.Value, ""
}

// isSection says whether keys stand below this name.
func isSection(name string) bool { return len(below(name)) > 0 }

func below(section string) []string {
	var names []string
	for _, k := range keys() {
		if strings.HasPrefix(k.name, section+".") {
			names = append(names, k.name)
		}
	}
	return names
}

// sections are all names below which keys stand.
func sections() []string {
	var names []string
	for _, k := range keys() {
		for i, r := range k.name {
			if name := k.name[:i]; r == '.' && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

func keyNames() []string {
	var names []string
	for _, k := range keys() {
		names = append(names, k.name)
	}
	return names
}
