package parse

import "github.com/millrace-stream/millrace/sql/ast"

// typ reads a type with its nullability and a trailing ARRAY or MULTISET.
func (p *parser) typ() ast.Type {
	defer p.leave()
	if !p.enter() {
		return nil
	}
	start := p.start()
	t := p.typeAlone(start)
	links := 0
	for p.chain(&links) {
		switch {
		case p.take(kwNot, kwNull):
			setNotNull(t, p.from(start))
		case p.is(kwNull) && p.ahead(1).kw != kwOn && p.take(kwNull): // NULL ON EMPTY may follow in JSON functions
			setSpan(t, p.from(start))
		case p.take(kwArray):
			t = &ast.ArrayType{Span: p.from(start), Elem: t}
		case p.take(kwMultiset):
			t = &ast.MultisetType{Span: p.from(start), Elem: t}
		default:
			return t
		}
	}
	return t
}

func setNotNull(t ast.Type, span ast.Span) {
	setSpan(t, span)
	switch t := t.(type) {
	case *ast.SimpleType:
		t.NotNull = true
	case *ast.ArrayType:
		t.NotNull = true
	case *ast.MapType:
		t.NotNull = true
	case *ast.MultisetType:
		t.NotNull = true
	case *ast.RowType:
		t.NotNull = true
	case *ast.IntervalType:
		t.NotNull = true
	case *ast.NamedType:
		t.NotNull = true
	}
}

func setSpan(t ast.Type, span ast.Span) {
	switch t := t.(type) {
	case *ast.SimpleType:
		t.Span = span
	case *ast.ArrayType:
		t.Span = span
	case *ast.MapType:
		t.Span = span
	case *ast.MultisetType:
		t.Span = span
	case *ast.RowType:
		t.Span = span
	case *ast.IntervalType:
		t.Span = span
	case *ast.NamedType:
		t.Span = span
	}
}

// typeAlone reads a type without what may follow it.
func (p *parser) typeAlone(start int) ast.Type {
	t := p.cur()
	if t.kind == kQuoted {
		return p.namedType(start)
	}
	if t.kind != kWord {
		p.unexpected("a type")
		return nil
	}
	if simple, ok := simpleTypes[t.kw]; ok {
		return p.simpleType(start, simple)
	}
	switch t.kw {
	case kwArray, kwMultiset:
		p.advance()
		p.expectKind(kLess, "<")
		elem := p.typ()
		p.expectKind(kGreater, ">")
		if t.kw == kwArray {
			return &ast.ArrayType{Span: p.from(start), Elem: elem}
		}
		return &ast.MultisetType{Span: p.from(start), Elem: elem}
	case kwMap:
		if p.ahead(1).kind != kLess {
			break
		}
		p.pos += 2
		key := p.typ()
		p.expectKind(kComma, ", and the type of the values")
		value := p.typ()
		p.expectKind(kGreater, ">")
		return &ast.MapType{Span: p.from(start), Key: key, Value: value}
	case kwRow:
		return p.rowType(start)
	case kwInterval:
		p.advance()
		unit := p.intervalUnit()
		return &ast.IntervalType{Span: p.from(start), Unit: unit}
	case kwRaw:
		p.fail(p.here(), "E1009", "RAW types are not supported").WithHint("use BYTES")
		return nil
	}
	if !t.kw.reserved() {
		return p.namedType(start)
	}
	if p.hintable("a type") {
		p.reservedWord(t, "a type")
		return nil
	}
	p.unexpected("a type")
	return nil
}

// namedType reads a name where a type stands.
func (p *parser) namedType(start int) ast.Type {
	n := p.name("a type")
	return &ast.NamedType{Span: p.from(start), Name: n}
}

// simple says how a type may be written.
type simple struct {
	name    string
	numbers int // how many numbers may follow in parentheses
	varying string
	zone    bool // WITH and WITHOUT TIME ZONE may follow
}

var simpleTypes = map[keyword]simple{
	kwBoolean:      {name: "BOOLEAN"},
	kwTinyint:      {name: "TINYINT"},
	kwSmallint:     {name: "SMALLINT"},
	kwInt:          {name: "INT"},
	kwInteger:      {name: "INT"},
	kwBigint:       {name: "BIGINT"},
	kwFloat:        {name: "FLOAT"},
	kwReal:         {name: "FLOAT"},
	kwDouble:       {name: "DOUBLE"},
	kwDecimal:      {name: "DECIMAL", numbers: 2},
	kwDec:          {name: "DECIMAL", numbers: 2},
	kwNumeric:      {name: "DECIMAL", numbers: 2},
	kwChar:         {name: "CHAR", numbers: 1, varying: "VARCHAR"},
	kwCharacter:    {name: "CHAR", numbers: 1, varying: "VARCHAR"},
	kwVarchar:      {name: "VARCHAR", numbers: 1},
	kwString:       {name: "STRING"},
	kwBinary:       {name: "BINARY", numbers: 1, varying: "VARBINARY"},
	kwVarbinary:    {name: "VARBINARY", numbers: 1},
	kwBytes:        {name: "BYTES"},
	kwDate:         {name: "DATE"},
	kwTime:         {name: "TIME", numbers: 1, zone: true},
	kwTimestamp:    {name: "TIMESTAMP", numbers: 1, zone: true},
	kwTimestampLtz: {name: "TIMESTAMP_LTZ", numbers: 1},
	kwNull:         {name: "NULL"},
	kwVariant:      {name: "VARIANT"},
}

func (p *parser) simpleType(start int, s simple) ast.Type {
	t := &ast.SimpleType{Name: s.name, Precision: -1, Scale: -1}
	p.advance()
	if s.name == "DOUBLE" {
		p.take(kwPrecision)
	}
	numbers := s.numbers
	if s.varying != "" && p.take(kwVarying) {
		t.Name = s.varying
	}
	if numbers > 0 && p.accept(kLParen) {
		t.Precision = p.integer("a number")
		if numbers > 1 && p.accept(kComma) {
			t.Scale = p.integer("a number")
		}
		p.expectKind(kRParen, ")")
	} else if numbers == 0 && p.at(kLParen) {
		p.fail(p.here(), "E1001", "%s takes no number in parentheses", s.name)
	}
	if s.zone {
		switch {
		case p.take(kwWithout, kwTime, kwZone):
		case s.name == "TIMESTAMP" && p.take(kwWith, kwLocal, kwTime, kwZone):
			t.Name = "TIMESTAMP_LTZ"
		case p.take(kwWith, kwTime, kwZone):
			if s.name == "TIME" {
				p.fail(p.from(start), "E1009", "TIME WITH TIME ZONE is not supported").WithHint("use TIME")
			}
			t.Name = "TIMESTAMP_TZ"
		}
	}
	t.Span = p.from(start)
	return t
}

// rowType reads ROW<a INT, ..> or ROW(a INT, ..).
func (p *parser) rowType(start int) ast.Type {
	p.advance()
	r := &ast.RowType{}
	switch {
	case p.accept(kNotEq): // ROW<>
	case p.accept(kLess):
		if !p.accept(kGreater) {
			r.Fields = list(p, p.rowField)
			p.expectKind(kGreater, ", or >")
		}
	case p.accept(kLParen):
		if !p.accept(kRParen) {
			r.Fields = list(p, p.rowField)
			p.expectKind(kRParen, ", or )")
		}
	default:
		p.unexpected("< or ( after ROW")
	}
	r.Span = p.from(start)
	return r
}

func (p *parser) rowField() ast.RowField {
	start := p.start()
	f := ast.RowField{Name: p.ident("the name of a field")}
	f.Type = p.typ()
	if p.at(kString) || p.at(kUnicode) {
		s := p.takeString()
		f.Comment = &s
	}
	f.Span = p.from(start)
	return f
}
