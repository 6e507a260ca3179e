// Package row has the values of streaming SQL: types, rows, the packed form of rows, keys, decimals, the calendar and
// the text forms of values. It knows no query, no format and no clock.
//
// # Types
//
// A [Type] is interned: two equal types are one pointer, so == compares types. The constructors ([Int], [Decimal],
// [Array], ...) give nullable types, [Type.NotNull] and [Type.Nullable] the other variant.
//
// # Rows
//
// A [Row] has two banks: words (W) for numbers, times and intervals, and byte views (S) for text, bytes and nested
// values. A [Layout] says for a list of column types where each column lies. The word of a column is
//
//	BOOLEAN                          0 or 1
//	TINYINT SMALLINT INT BIGINT      the number, as uint64(int64(v))
//	FLOAT DOUBLE                     math.Float64bits; a FLOAT is first rounded to a float32
//	DATE                             days since 1970-01-01, as uint64(int64(v))
//	TIME                             ms of the day
//	INTERVAL_DAY, INTERVAL_MONTH     ms, months, as uint64(int64(v))
//	TIMESTAMP[_LTZ](0..3)            ms since 1970-01-01 00:00:00, as uint64(int64(v))
//	TIMESTAMP[_LTZ](4..9)            two words: ms, nanoseconds in that ms (0 to 999999)
//	DECIMAL(1..18)                   the unscaled number, as uint64(int64(v))
//	DECIMAL(19..38)                  two words: low, high half of the unscaled number ([Dec])
//
// CHAR, VARCHAR (UTF-8), BINARY, VARBINARY and the packed forms of ARRAY, MAP, MULTISET and ROW are views in S. A NULL
// column has its null bit set; what its words and view hold then means nothing.
//
// A view is not copied: it points into a Kafka record, an arena or a packed row. Who keeps a row packs it
// ([Layout.Pack]) or copies it ([Layout.Copy]).
package row
