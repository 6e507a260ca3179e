package protobuf

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/millrace-stream/millrace/internal/near"
)

// compileFile compiles a .proto file. What it imports is looked for in the folders paths; those of google/protobuf are known.
func compileFile(file string, paths []string) (protoreflect.FileDescriptor, error) {
	name := filepath.Base(file)
	if len(paths) == 0 {
		paths = []string{filepath.Dir(file)}
	} else if rel, ok := below(file, paths); ok {
		name = rel
	} else {
		return nil, fmt.Errorf("it is below none of the folders of import-path: %s", strings.Join(paths, ", "))
	}
	if _, err := os.Stat(file); err != nil {
		return nil, err
	}
	return compile(name, &protocompile.SourceResolver{ImportPaths: paths})
}

// below is the path of file relative to the first of the folders that has it.
func below(file string, paths []string) (string, bool) {
	for _, p := range paths {
		if rel, err := filepath.Rel(p, file); err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator)) {
			return filepath.ToSlash(rel), true
		}
	}
	return "", false
}

// compileText compiles the text of a schema. imports are the texts of what it imports, by path.
func compileText(text string, imports map[string]string) (protoreflect.FileDescriptor, error) {
	const name = "millrace/schema.proto"
	return compile(name, &protocompile.SourceResolver{Accessor: func(path string) (io.ReadCloser, error) {
		if path == name {
			return io.NopCloser(strings.NewReader(text)), nil
		}
		if s, ok := imports[path]; ok {
			return io.NopCloser(strings.NewReader(s)), nil
		}
		return nil, os.ErrNotExist
	}})
}

func compile(name string, sources protocompile.Resolver) (protoreflect.FileDescriptor, error) {
	c := protocompile.Compiler{Resolver: protocompile.WithStandardImports(sources), MaxParallelism: 1}
	files, err := c.Compile(context.Background(), name)
	if err != nil {
		return nil, err
	}
	return files[0], nil
}

// readSet reads a file of descriptors, as protoc --include_imports --descriptor_set_out writes it.
func readSet(file string) ([]protoreflect.FileDescriptor, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(b, &set); err != nil {
		return nil, errors.New("it is no FileDescriptorSet; make one with protoc --include_imports --descriptor_set_out=FILE")
	}
	known, err := protodesc.NewFiles(&set)
	if err != nil {
		return nil, fmt.Errorf("%w; was it made with --include_imports?", err)
	}
	var files []protoreflect.FileDescriptor
	for _, f := range set.File {
		d, err := known.FindFileByPath(f.GetName())
		if err != nil {
			return nil, err
		}
		files = append(files, d)
	}
	return files, nil
}

// messages are all messages of files, nested ones behind those that they are in.
func messages(files []protoreflect.FileDescriptor) []protoreflect.MessageDescriptor {
	var all []protoreflect.MessageDescriptor
	var add func(ms protoreflect.MessageDescriptors)
	add = func(ms protoreflect.MessageDescriptors) {
		for i := range ms.Len() {
			if m := ms.Get(i); !m.IsMapEntry() {
				all = append(all, m)
				add(m.Messages())
			}
		}
	}
	for _, f := range files {
		add(f.Messages())
	}
	return all
}

// find is the message of that name, whole or without its package, or of that class of Java. Without both it is the first
// message of the last file, if that has one only.
func find(files []protoreflect.FileDescriptor, name, class string) (protoreflect.MessageDescriptor, error) {
	all := messages(files)
	var names []string
	for _, m := range all {
		full := string(m.FullName())
		if name == "" && class != "" {
			full = javaName(m)
		}
		if names = append(names, full); name == full || name == "" && strings.ReplaceAll(class, "$", ".") == full {
			return m, nil
		}
	}
	switch {
	case name == "" && class == "":
		last := files[len(files)-1].Messages()
		if last.Len() == 1 {
			return last.Get(0), nil
		}
		return nil, fmt.Errorf("option 'message-name' is missing; there are: %s", strings.Join(names, ", "))
	case name != "":
		for _, m := range all {
			if string(m.Name()) == name {
				return m, nil
			}
		}
	}
	wanted := "message-name"
	if name == "" {
		name, wanted = class, "message-class-name"
	}
	if n, ok := near.Word(name, names); ok {
		return nil, fmt.Errorf("option '%s': there is no %s; did you mean %s?", wanted, name, n)
	}
	return nil, fmt.Errorf("option '%s': there is no %s; there are: %s", wanted, name, strings.Join(names, ", "))
}

// javaName is the class that Java has for a message, with . before nested ones.
func javaName(m protoreflect.MessageDescriptor) string {
	file := m.ParentFile()
	o, _ := file.Options().(*descriptorpb.FileOptions)
	pkg := string(file.Package())
	if o != nil && o.JavaPackage != nil {
		pkg = o.GetJavaPackage()
	}
	name := strings.TrimPrefix(strings.TrimPrefix(string(m.FullName()), string(file.Package())), ".")
	if o == nil || !o.GetJavaMultipleFiles() {
		var outer string
		if o != nil && o.JavaOuterClassname != nil {
			outer = o.GetJavaOuterClassname()
		} else {
			outer = outerClass(file)
		}
		name = outer + "." + name
	}
	if pkg == "" {
		return name
	}
	return pkg + "." + name
}

// outerClass is the name of the class that has the messages of a file: the file's name in camel case, with OuterClass
// behind it where a message or enum has that name.
func outerClass(file protoreflect.FileDescriptor) string {
	base := strings.TrimSuffix(filepath.Base(file.Path()), ".proto")
	var b strings.Builder
	upper := true
	for _, c := range base {
		switch {
		case c >= 'a' && c <= 'z' && upper:
			b.WriteRune(c - 'a' + 'A')
			upper = false
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z':
			b.WriteRune(c)
			upper = false
		case c >= '0' && c <= '9':
			b.WriteRune(c)
			upper = true
		default:
			upper = true
		}
	}
	name := b.String()
	for _, m := range messages([]protoreflect.FileDescriptor{file}) {
		if string(m.Name()) == name {
			return name + "OuterClass"
		}
	}
	for i := range file.Enums().Len() {
		if string(file.Enums().Get(i).Name()) == name {
			return name + "OuterClass"
		}
	}
	return name
}

// indexed is the message that the indexes of a message of a registry mean. They count the messages of the text: those that
// stand for the entries of maps are none.
func indexed(file protoreflect.FileDescriptor, index []int) (protoreflect.MessageDescriptor, error) {
	ms := written(file.Messages())
	var m protoreflect.MessageDescriptor
	for _, i := range index {
		if i < 0 || i >= len(ms) {
			m = nil
			break
		}
		m = ms[i]
		ms = written(m.Messages())
	}
	if m == nil {
		return nil, fmt.Errorf("the message's indexes %v mean no message of the schema", index)
	}
	return m, nil
}

// written are the messages that stand in the text.
func written(ms protoreflect.MessageDescriptors) []protoreflect.MessageDescriptor {
	var list []protoreflect.MessageDescriptor
	for i := range ms.Len() {
		if m := ms.Get(i); !m.IsMapEntry() {
			list = append(list, m)
		}
	}
	return list
}

// indexOf are the indexes of a message in its file.
func indexOf(m protoreflect.MessageDescriptor) []int {
	var index []int
	for d := m; d != nil; {
		var siblings []protoreflect.MessageDescriptor
		parent, _ := d.Parent().(protoreflect.MessageDescriptor)
		if parent != nil {
			siblings = written(parent.Messages())
		} else {
			siblings = written(d.ParentFile().Messages())
		}
		index = append(index, slices.IndexFunc(siblings, func(s protoreflect.MessageDescriptor) bool { return s.FullName() == d.FullName() }))
		d = parent
	}
	slices.Reverse(index)
	return index
}
