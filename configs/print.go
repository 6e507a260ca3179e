package configs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"go.yaml.in/yaml/v3"
)

// Forms of Print.
const (
	FormTable = "table"
	FormYAML  = "yaml"
	FormJSON  = "json"
)

// Print writes every key with its value and where it came from, secrets masked: as a table, as JSON (one object, a
// member for each key), or as a YAML file that can be loaded again, in which secrets are commented out.
func (l *Loaded) Print(w io.Writer, form string) error {
	var out []byte
	var err error
	switch form {
	case FormTable, "":
		out = l.table()
	case FormYAML:
		out, err = l.yaml()
	case FormJSON:
		out, err = l.json()
	default:
		return &Faults{List: []Fault{{Key: "form", Value: fmt.Sprintf("%q", form), Problem: "table, yaml or json is wanted"}}}
	}
	if err != nil {
		return fmt.Errorf("print the configuration: %w", err)
	}
	_, err = w.Write(out)
	return err
}

// masked is the value of a key for people: the text, with a mask for a secret.
func (l *Loaded) masked(k key) string {
	if s, ok := k.at(&l.Config).(*Secret); ok {
		return s.String()
	}
	return text(k.at(&l.Config))
}

func (l *Loaded) table() []byte {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "KEY\tVALUE\tORIGIN")
	for _, k := range keys() {
		value := plain(l.masked(k))
		if value == "" {
			value = `""`
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\n", k.name, value, l.Origin(k.name))
	}
	_ = w.Flush() // into memory
	return b.Bytes()
}

func (l *Loaded) yaml() ([]byte, error) {
	top := &yaml.Node{Kind: yaml.MappingNode}
	sections := map[string]*yaml.Node{"": top}
	var section func(path string) *yaml.Node
	section = func(path string) *yaml.Node {
		if node, ok := sections[path]; ok {
			return node
		}
		parent, name := "", path
		if i := strings.LastIndexByte(path, '.'); i >= 0 {
			parent, name = path[:i], path[i+1:]
		}
		node := &yaml.Node{Kind: yaml.MappingNode}
		p := section(parent)
		p.Content = append(p.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: name}, node)
		sections[path] = node
		return node
	}
	for _, k := range keys() {
		parent, name := "", k.name
		if i := strings.LastIndexByte(k.name, '.'); i >= 0 {
			parent, name = k.name[:i], k.name[i+1:]
		}
		node := section(parent)
		key := &yaml.Node{Kind: yaml.ScalarNode, Value: name}
		value := &yaml.Node{LineComment: l.Origin(k.name)}
		if err := value.Encode(l.typed(k)); err != nil {
			return nil, err
		}
		value.LineComment = l.Origin(k.name)
		if value.Kind == yaml.SequenceNode {
			value.Style = yaml.FlowStyle
		}
		if s, ok := k.at(&l.Config).(*Secret); ok && *s != "" {
			// Not a value: loaded again, the mask would be the secret.
			value = &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Style: yaml.SingleQuotedStyle,
				LineComment: "a secret of " + l.Origin(k.name) + ", not shown"}
		}
		node.Content = append(node.Content, key, value)
	}
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(top); err != nil {
		return nil, err
	}
	return b.Bytes(), enc.Close()
}

func (l *Loaded) json() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, k := range keys() {
		if i > 0 {
			b.WriteByte(',')
		}
		value, err := json.Marshal(struct {
			Value  any    `json:"value"`
			Origin string `json:"origin"`
		}{l.typed(k), l.Origin(k.name)})
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "\n  %q: %s", k.name, value)
	}
	b.WriteString("\n}\n")
	return b.Bytes(), nil
}

// typed is the value of a key for encoders: bool, int, list or masked text.
func (l *Loaded) typed(k key) any {
	switch p := k.at(&l.Config).(type) {
	case *bool:
		return *p
	case *int:
		return *p
	case *[]string:
		return *p
	default:
		return l.masked(k)
	}
}
