package ast

// SimpleType is a type without parts.
type SimpleType struct {
	Span
	// Name is the one name of the type, whatever alias was written: BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT,
	// DOUBLE, DECIMAL, CHAR, VARCHAR, STRING, BINARY, VARBINARY, BYTES, DATE, TIME, TIMESTAMP, TIMESTAMP_LTZ,
	// TIMESTAMP_TZ, NULL, VARIANT.
	Name string
	// Precision is the first number in parentheses (also a length), Scale the second; -1 if not written.
	Precision, Scale int
	NotNull          bool
}

// ArrayType is ARRAY<T> or T ARRAY.
type ArrayType struct {
	Span
	Elem    Type
	NotNull bool
}

// MapType is MAP<K, V>.
type MapType struct {
	Span
	Key, Value Type
	NotNull    bool
}

// MultisetType is MULTISET<T> or T MULTISET.
type MultisetType struct {
	Span
	Elem    Type
	NotNull bool
}

// RowType is ROW<a T, ..> or ROW(a T, ..).
type RowType struct {
	Span
	Fields  []RowField
	NotNull bool
}

// RowField is a field of a RowType.
type RowField struct {
	Span
	Name    Ident
	Type    Type
	Comment *String
}

// IntervalType is INTERVAL DAY TO SECOND and the like.
type IntervalType struct {
	Span
	Unit    IntervalUnit
	NotNull bool
}

// NamedType is a name that is no built-in type. The binder refuses it.
type NamedType struct {
	Span
	Name    Name
	NotNull bool
}

func (*SimpleType) typ()   {}
func (*ArrayType) typ()    {}
func (*MapType) typ()      {}
func (*MultisetType) typ() {}
func (*RowType) typ()      {}
func (*IntervalType) typ() {}
func (*NamedType) typ()    {}
