package format

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// op is what a node does with a value.
type op uint8

const (
	opBool op = iota
	opInt
	opUint
	opFloat
	opString
	opNumber   // json.Number
	opRaw      // json.RawMessage
	opBytes    // base64
	opTime     // time.Time by unit
	opDuration // time.Duration by unit
	opStruct
	opSlice
	opArray
	opMap
	opPtr
	opAny
	opJSONMethod
	opTextMethod
)

// unit is how a time.Time or time.Duration stands in a document.
type unit uint8

const (
	unitNone unit = iota
	unitSeconds
	unitMillis
	unitMicros
	unitNanos
	unitRFC3339
)

// perSecond is indexed by unit.
var perSecond = [...]int64{unitSeconds: 1, unitMillis: 1e3, unitMicros: 1e6, unitNanos: 1e9, unitRFC3339: 0}

var timeUnits = map[string]unit{
	"unix": unitSeconds, "unixmilli": unitMillis, "unixmicro": unitMicros, "unixnano": unitNanos, "rfc3339": unitRFC3339,
}

var durationUnits = map[string]unit{
	"seconds": unitSeconds, "millis": unitMillis, "micros": unitMicros, "nanos": unitNanos,
}

// node is the plan of one type: decode and append walk it beside the document.
type node struct {
	dec, enc op
	bits     uint8 // of numbers: 8, 16, 32, 64
	quoted   bool  // the number stands in a string
	unit     unit
	typ      reflect.Type
	elem     *node // of pointers, slices, arrays, maps
	size     uintptr

	fields        []field
	byLen         [][]int // indexes into fields by length of the name
	refuseUnknown bool
}

// field is one JSON field of a struct, its embedded structs included.
type field struct {
	name      string
	prefix    []byte  // ,"name":
	lead      string  // "name":
	goName    string  // for errors
	hops      []hop   // through embedded pointers
	offset    uintptr // from the struct, or from the last hop
	node      *node
	omitEmpty bool
	omitZero  bool
	tagged    bool
	typ       reflect.Type
	options   fieldOptions
}

// hop is an embedded pointer on the way to a field.
type hop struct {
	offset uintptr
	elem   reflect.Type
}

// fieldOptions are those that reach through pointers, slices, arrays and maps to the value.
type fieldOptions struct {
	unit   unit
	quoted bool
}

var (
	typeTime        = reflect.TypeFor[time.Time]()
	typeDuration    = reflect.TypeFor[time.Duration]()
	typeNumber      = reflect.TypeFor[json.Number]()
	typeRaw         = reflect.TypeFor[json.RawMessage]()
	typeAny         = reflect.TypeFor[any]()
	jsonMarshaler   = reflect.TypeFor[json.Marshaler]()
	jsonUnmarshaler = reflect.TypeFor[json.Unmarshaler]()
	textMarshaler   = reflect.TypeFor[encoding.TextMarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// implementsJSON tells whether values of t read or write themselves.
func implementsJSON(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(jsonMarshaler) || p.Implements(jsonUnmarshaler) || p.Implements(textMarshaler) || p.Implements(textUnmarshaler)
}

// planner compiles types; a type that contains itself is met again in done.
type planner struct {
	o    jsonOptions
	done map[planKey]*node
	errs []error
}

type planKey struct {
	t reflect.Type
	o fieldOptions
}

func planJSON(t reflect.Type, o jsonOptions) (*node, error) {
	p := planner{o: o, done: map[planKey]*node{}}
	path := t.String()
	if t.Name() != "" {
		path = t.Name()
	}
	n := p.plan(t, fieldOptions{}, path)
	return n, errors.Join(p.errs...)
}

func (p *planner) fail(path, msg string, args ...any) {
	p.errs = append(p.errs, fmt.Errorf("%s: %s", path, fmt.Sprintf(msg, args...)))
}

func (p *planner) plan(t reflect.Type, o fieldOptions, path string) *node {
	n := &node{typ: t, size: t.Size(), unit: o.unit, quoted: o.quoted, refuseUnknown: p.o.refuseUnknown}
	set := func(o op) { n.dec, n.enc = o, o }
	switch t {
	case typeTime:
		set(opTime)
		if o.unit == unitNone {
			p.fail(path, "a time.Time must name its unit in a struct tag: unix, unixmilli, unixmicro, unixnano or rfc3339, as in `json:\"ts,unixmilli\"`")
		}
		return n
	case typeDuration:
		set(opDuration)
		if o.unit == unitNone {
			p.fail(path, "a time.Duration must name its unit in a struct tag: seconds, millis, micros or nanos, as in `json:\"took,millis\"`")
		}
		return n
	case typeNumber:
		set(opNumber)
		return n
	case typeRaw:
		set(opRaw)
		return n
	case typeAny:
		set(opAny)
		return n
	}
	if t.Name() != "" { // a type that contains itself does so through a name
		key := planKey{t, o}
		if known := p.done[key]; known != nil {
			return known
		}
		p.done[key] = n
	}
	if t.Kind() == reflect.Struct {
		for f := range fieldsOf(t) {
			if f.Anonymous && (f.Type == typeTime || f.Type == reflect.PointerTo(typeTime)) {
				p.fail(path, "an embedded time.Time hides the other fields: give it a name and a unit")
				return n
			}
		}
	}
	var decMethod, encMethod op
	if t.Kind() != reflect.Pointer && t.Kind() != reflect.Interface {
		ptr := reflect.PointerTo(t)
		switch {
		case ptr.Implements(jsonUnmarshaler):
			decMethod = opJSONMethod
		case ptr.Implements(textUnmarshaler):
			decMethod = opTextMethod
		}
		switch {
		case ptr.Implements(jsonMarshaler):
			encMethod = opJSONMethod
		case ptr.Implements(textMarshaler):
			encMethod = opTextMethod
		}
	}
	if decMethod == 0 || encMethod == 0 {
		p.planKind(n, t, o, path)
	}
	if decMethod != 0 {
		n.dec = decMethod
	}
	if encMethod != 0 {
		n.enc = encMethod
	}
	return n
}

// planKind plans t by its kind.
func (p *planner) planKind(n *node, t reflect.Type, o fieldOptions, path string) {
	set := func(o op) { n.dec, n.enc = o, o }
	switch t.Kind() {
	case reflect.Bool:
		set(opBool)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		set(opInt)
		n.bits = uint8(t.Bits())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		set(opUint)
		n.bits = uint8(t.Bits())
	case reflect.Float32, reflect.Float64:
		set(opFloat)
		n.bits = uint8(t.Bits())
	case reflect.String:
		set(opString)
	case reflect.Pointer:
		set(opPtr)
		if !endsPointers(t) {
			p.fail(path, "%s is a pointer to itself", t)
			return
		}
		n.elem = p.plan(t.Elem(), o, path)
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 && !implementsJSON(t.Elem()) {
			set(opBytes)
			return
		}
		set(opSlice)
		n.elem = p.plan(t.Elem(), o, path+"[]")
	case reflect.Array:
		set(opArray)
		n.elem = p.plan(t.Elem(), o, path+"[]")
	case reflect.Map:
		set(opMap)
		if t.Key().Kind() != reflect.String || implementsJSON(t.Key()) {
			p.fail(path, "a map key must be a plain string, not %s", t.Key())
		}
		n.elem = p.plan(t.Elem(), o, path+"[]")
	case reflect.Struct:
		set(opStruct)
		p.planStruct(n, t, path)
	case reflect.Interface:
		p.fail(path, "of the interfaces only any has a JSON form, not %s", t)
	default:
		p.fail(path, "%s has no JSON form; leave it out with the tag `json:\"-\"`", t)
	}
}

func (p *planner) planStruct(n *node, t reflect.Type, path string) {
	n.fields = p.collect(t, path)
	if len(n.fields) == 0 {
		p.fail(path, "the struct has no exported field to read or write")
	}
	for i := range n.fields {
		f := &n.fields[i]
		f.node = p.plan(f.typ, f.options, path+"."+f.goName)
		f.prefix = append(appendString([]byte{','}, f.name), ':')
		f.lead = view(f.prefix[1:])
		for len(n.byLen) <= len(f.name) {
			n.byLen = append(n.byLen, nil)
		}
		n.byLen[len(f.name)] = append(n.byLen[len(f.name)], i)
	}
}

// level is a struct whose fields are collected.
type level struct {
	t      reflect.Type
	hops   []hop
	offset uintptr
	goName string // of the embedding, with a dot
	index  []int  // place among all fields, for the order of writing
}

// collect returns the JSON fields of t in the order of the source, with Go's rules for embedded structs: a field nearer
// to the top hides one below, and of two at the same depth the one with a tag wins. Two equals are an error.
func (p *planner) collect(t reflect.Type, path string) []field {
	type found struct {
		field
		index []int
	}
	var all []found
	taken := map[string]bool{}
	visited := map[reflect.Type]bool{t: true}
	for current := []level{{t: t}}; len(current) > 0; {
		var next []level
		var here []found
		for _, l := range current {
			i := -1
			for sf := range fieldsOf(l.t) {
				i++
				tag, hasTag := sf.Tag.Lookup("json")
				if tag == "-" {
					continue
				}
				goName := l.goName + sf.Name
				index := append(slices.Clone(l.index), i)
				ft := sf.Type
				embeddedPtr := sf.Anonymous && ft.Kind() == reflect.Pointer
				if embeddedPtr {
					ft = ft.Elem()
				}
				name, opts, _ := strings.Cut(tag, ",")
				if sf.Anonymous && name == "" && ft.Kind() == reflect.Struct {
					if visited[ft] {
						continue
					}
					nl := level{t: ft, hops: l.hops, offset: l.offset + sf.Offset, goName: goName + ".", index: index}
					if embeddedPtr {
						if !sf.IsExported() {
							p.fail(path+"."+goName, "a pointer to an unexported struct cannot be embedded: decoding has no right to set it")
							continue
						}
						nl.hops = append(slices.Clone(l.hops), hop{nl.offset, ft})
						nl.offset = 0
					}
					next = append(next, nl)
					continue
				}
				if !sf.IsExported() {
					continue
				}
				f := field{name: name, goName: goName, hops: l.hops, offset: l.offset + sf.Offset, typ: sf.Type, tagged: hasTag && name != ""}
				if name == "" {
					f.name = sf.Name
				}
				if !utf8.ValidString(f.name) {
					p.fail(path+"."+goName, "the name %q is not UTF-8", f.name)
					continue
				}
				p.options(&f, opts, path+"."+goName)
				here = append(here, found{f, index})
			}
		}
		// Of the fields of one depth, those with a tag come first, so that they win.
		slices.SortStableFunc(here, func(a, b found) int {
			switch {
			case a.tagged == b.tagged:
				return 0
			case a.tagged:
				return -1
			}
			return 1
		})
		first := map[string]found{}
		for _, f := range here {
			if taken[f.name] {
				continue
			}
			if o, ok := first[f.name]; ok {
				if o.tagged == f.tagged {
					p.fail(path, "fields %s and %s both have the JSON name %q", o.goName, f.goName, f.name)
				}
				continue
			}
			first[f.name] = f
			all = append(all, f)
		}
		for name := range first {
			taken[name] = true
		}
		for _, l := range next {
			visited[l.t] = true
		}
		current = next
	}
	slices.SortStableFunc(all, func(a, b found) int { return slices.Compare(a.index, b.index) })
	fields := make([]field, len(all))
	for i, f := range all {
		fields[i] = f.field
	}
	return fields
}

// options reads what stands behind the name in a tag and checks that it suits the type.
func (p *planner) options(f *field, opts, path string) {
	base := baseOf(f.typ)
	for opt := range strings.SplitSeq(opts, ",") {
		switch opt {
		case "":
			continue
		case "omitempty":
			f.omitEmpty = true
			continue
		case "omitzero":
			f.omitZero = true
			continue
		case "string":
			k := base.Kind()
			if base == typeDuration || k < reflect.Int || k > reflect.Float64 || k == reflect.Uintptr || implementsJSON(base) {
				p.fail(path, "the option string is for integers and floats, not for %s", f.typ)
			}
			f.options.quoted = true
			continue
		}
		units, of := timeUnits, typeTime
		if _, ok := units[opt]; !ok {
			units, of = durationUnits, typeDuration
		}
		u, ok := units[opt]
		switch {
		case !ok:
			p.fail(path, "unknown option %q in the json tag", opt)
		case base != of:
			p.fail(path, "the unit %s is for a %s, not for %s", opt, of, f.typ)
		case f.options.unit != unitNone:
			p.fail(path, "the json tag names two units")
		default:
			f.options.unit = u
		}
	}
}

// maxWraps bounds the walk through pointers, slices, arrays and maps, since a type can be its own element.
const maxWraps = 100

// baseOf is the type of the values inside pointers, slices, arrays and maps.
func baseOf(t reflect.Type) reflect.Type {
	for range maxWraps {
		k := t.Kind()
		if k != reflect.Pointer && (t == typeRaw || implementsJSON(t)) {
			break
		}
		if k != reflect.Pointer && k != reflect.Slice && k != reflect.Array && k != reflect.Map {
			break
		}
		t = t.Elem()
	}
	return t
}

// endsPointers tells whether a chain of pointers comes to a value.
func endsPointers(t reflect.Type) bool {
	for range maxWraps {
		if t.Kind() != reflect.Pointer {
			return true
		}
		t = t.Elem()
	}
	return false
}

// fieldsOf yields the direct fields of a struct.
func fieldsOf(t reflect.Type) func(func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for i := range t.NumField() {
			if !yield(t.Field(i)) {
				return
			}
		}
	}
}
