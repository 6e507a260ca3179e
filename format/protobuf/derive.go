package protobuf

import (
	"errors"
	"fmt"
	"strings"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/row"
)

func outside(err error) bool {
	var o *format.OutsideError
	return errors.As(err, &o)
}

// derive is the schema of a table of these columns: proto3, numbered as the columns stand, optional where NULL can be. A ROW is
// a message inside, called by its field's name and Type.
func derive(fields []row.Field) (string, error) {
	var d deriver
	if err := d.message("Record", fields, 0, ""); err != nil {
		return "", err
	}
	head := "syntax = \"proto3\";\n"
	if d.stamps {
		head += "import \"google/protobuf/timestamp.proto\";\n"
	}
	return head + d.b.String(), nil
}

type deriver struct {
	b      strings.Builder
	stamps bool
}

func (d *deriver) message(name string, fields []row.Field, depth int, path string) error {
	in := strings.Repeat("  ", depth)
	fmt.Fprintf(&d.b, "%smessage %s {\n", in, name)
	for i, f := range fields {
		t, label, at := f.Type, "", join(path, f.Name)
		switch {
		case t.Kind() == row.KindArray:
			t, label = t.Elem(), "repeated "
		case t.IsNullable() && t.Kind() != row.KindMap:
			label = "optional "
		}
		var text string
		var err error
		if t.Kind() == row.KindMap {
			if text, err = d.pair(f, t, depth, at); err != nil {
				return err
			}
		} else if text, err = d.typ(f, t, depth, at); err != nil {
			return err
		}
		fmt.Fprintf(&d.b, "%s  %s%s %s = %d;\n", in, label, text, f.Name, i+1)
	}
	fmt.Fprintf(&d.b, "%s}\n", in)
	return nil
}

func (d *deriver) pair(f row.Field, t *row.Type, depth int, path string) (string, error) {
	key, err := d.typ(f, t.Key(), depth, path+"{key}")
	if err != nil {
		return "", err
	}
	switch key {
	case "bool", "int32", "int64", "string":
	default:
		return "", fmt.Errorf("column %s: the keys of a map of Protobuf are numbers without fraction, BOOLEAN or text, not %s", path, t.Key())
	}
	value, err := d.typ(f, t.Elem(), depth, path+"{}")
	return "map<" + key + ", " + value + ">", err
}

// typ is the type of a value; it writes the message of a ROW first.
func (d *deriver) typ(f row.Field, t *row.Type, depth int, path string) (string, error) {
	hint := ""
	switch k := t.Kind(); k {
	case row.KindBoolean:
		return "bool", nil
	case row.KindTinyInt, row.KindSmallInt, row.KindInt:
		return "int32", nil
	case row.KindBigInt:
		return "int64", nil
	case row.KindFloat:
		return "float", nil
	case row.KindDouble:
		return "double", nil
	case row.KindChar, row.KindVarChar:
		return "string", nil
	case row.KindBinary, row.KindVarBinary:
		return "bytes", nil
	case row.KindTimestamp, row.KindTimestampLTZ:
		d.stamps = true
		return timestampName, nil
	case row.KindRow:
		fields := make([]row.Field, t.NumFields())
		for i := range fields {
			fields[i] = t.Field(i)
		}
		name := f.Name + "Type"
		return name, d.message(name, fields, depth+1, path)
	case row.KindArray, row.KindMap:
		hint = "; put it into a ROW"
	case row.KindDecimal, row.KindDate, row.KindTime:
		hint = "; CAST the column AS STRING"
	}
	return "", fmt.Errorf("column %s: %s has no type in Protobuf there%s", path, t, hint)
}
