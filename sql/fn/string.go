package fn

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/millrace-stream/millrace/row"
)

// varying is the type of argument i as a VARCHAR, nullable if any argument is.
func varying(i int) result {
	return func(args []Arg) *row.Type {
		return row.VarChar(args[i].Type.Length()).Nullable(anyNullable(args))
	}
}

// bothLengths is a VARCHAR with room for the first two texts.
func bothLengths(args []Arg) *row.Type {
	n := int64(args[0].Type.Length()) + int64(args[1].Type.Length())
	return row.VarChar(int(min(n, int64(row.String().Length())))).Nullable(anyNullable(args))
}

// text1 is a function of one text that gives text.
func text1(name string, res result, doc string, f func(dst, b []byte) []byte, examples ...Example) *Func {
	return &Func{
		Name: name, Group: "string", Syntax: name + "(string)", Doc: doc, Examples: examples, Resolve: sigs(of(res, wantText)),
		Compile: func(env *Env, args []Code, t *row.Type) (Code, error) {
			return BytesCode(t, lift1(args[0].Bytes, func(b []byte) []byte { return env.Arena.Keep(f(env.Arena.Begin(), b)) })), nil
		},
	}
}

// textInt is a function of text to an INT.
func textInt(f func(b []byte) int64) func(*Env, []Code, *row.Type) (Code, error) {
	return func(_ *Env, args []Code, t *row.Type) (Code, error) { return IntCode(t, lift1(args[0].Bytes, f)), nil }
}

// text3 is a function of three texts; the result is a part of them or new bytes.
func text3(f func(env *Env, a, b, c []byte) ([]byte, bool)) func(*Env, []Code, *row.Type) (Code, error) {
	return func(env *Env, args []Code, t *row.Type) (Code, error) {
		return BytesCode(t, try3(args[0].Bytes, args[1].Bytes, args[2].Bytes, func(a, b, c []byte) ([]byte, bool) { return f(env, a, b, c) })), nil
	}
}

var stringFuncs = []*Func{
	{
		Name: "||", Group: "string", Syntax: "string1 || string2", Doc: "The two texts, or bytes, behind each other.",
		Resolve: func(args []Arg) (Resolved, error) {
			if len(args) != 2 || wantStringy.fit(args[0]) == nil || wantStringy.fit(args[1]) == nil {
				return Resolved{}, mismatch(args, []sig{of(nil, wantStringy, wantStringy)})
			}
			t, u := wantStringy.fit(args[0]), wantStringy.fit(args[1])
			if t.Kind().Text() != u.Kind().Text() {
				return Resolved{}, mismatch(args, []sig{of(nil, wantText, wantText), of(nil, wantBinary, wantBinary)})
			}
			n := row.MaxLength
			if t.Length() < n && u.Length() < n-t.Length() {
				n = t.Length() + u.Length()
			}
			var res *row.Type
			switch {
			case t.Kind() == row.KindChar && u.Kind() == t.Kind():
				res = row.Char(n)
			case t.Kind().Text():
				res = row.VarChar(n)
			case t.Kind() == row.KindBinary && u.Kind() == t.Kind():
				res = row.Binary(n)
			default:
				res = row.VarBinary(n)
			}
			return Resolved{[]*row.Type{t, u}, res.Nullable(anyNullable(args) || t.IsNullable() || u.IsNullable())}, nil
		},
		Compile:  compileConcat,
		Examples: []Example{{"'ab' || 'c'", "CHAR(3) NOT NULL", "abc"}},
	},
	{
		Name: "CONCAT", Group: "string", Syntax: "CONCAT(string1, string2, ..)", Doc: "The texts behind each other, NULL if one is NULL.",
		Resolve: sigs(of(strictly(row.String()), wantText).many()), Compile: compileConcat,
		Examples: []Example{{"CONCAT('a', 'b', 'c')", "STRING NOT NULL", "abc"}},
	},
	{
		Name: "CONCAT_WS", Group: "string", Nulls: Custom, Syntax: "CONCAT_WS(separator, string1, ..)",
		Doc:     "The texts that are not NULL with the separator between them; NULL if the separator is NULL.",
		Resolve: sigs(of(strictly(row.String()), wantText).many()),
		Compile: func(env *Env, args []Code, t *row.Type) (Code, error) {
			parts := make([][]byte, len(args))
			return BytesCode(t, func(r *row.Row) ([]byte, bool) {
				n := 0
				for i, a := range args {
					b, ok := a.Bytes(r)
					switch {
					case ok:
						parts[n] = b
						n++
					case i == 0:
						return nil, false
					}
				}
				dst := env.Arena.Begin()
				for i := 1; i < n; i++ {
					if i > 1 {
						dst = append(dst, parts[0]...)
					}
					dst = append(dst, parts[i]...)
				}
				return env.Arena.Keep(dst), true
			}), nil
		},
		Examples: []Example{{"CONCAT_WS('-', 'a', CAST(NULL AS STRING), 'b')", "STRING", "a-b"}},
	},
	{
		Name: "CHAR_LENGTH", Aliases: []string{"CHARACTER_LENGTH"}, Group: "string", Syntax: "CHAR_LENGTH(string)", Doc: "The number of characters (code points).",
		Resolve: sigs(of(strictly(row.Int()), wantText)), Compile: textInt(func(b []byte) int64 { return int64(utf8.RuneCount(b)) }),
		Examples: []Example{{"CHAR_LENGTH('abc')", "INT NOT NULL", "3"}},
	},
	text1("UPPER", sameAs(0), "The text in capital letters.", appendUpper, Example{"UPPER('abc')", "CHAR(3) NOT NULL", "ABC"}),
	text1("LOWER", sameAs(0), "The text in small letters.", func(dst, b []byte) []byte {
		if at := len(dst); isASCII(b) {
			dst = append(dst, b...)
			for i, c := range dst[at:] {
				if c >= 'A' && c <= 'Z' {
					dst[at+i] = c | 0x20
				}
			}
			return dst
		}
		return append(dst, bytes.ToLower(b)...)
	}, Example{"LOWER('ABC')", "CHAR(3) NOT NULL", "abc"}),
	text1("INITCAP", sameAs(0), "Each word of Latin letters and digits with a capital letter first and small ones behind.", appendInitcap,
		Example{"INITCAP('hello WORLD')", "CHAR(11) NOT NULL", "Hello World"}),
	text1("REVERSE", strictly(row.String()), "The characters from the last to the first.", func(dst, b []byte) []byte {
		for len(b) > 0 {
			_, n := utf8.DecodeLastRune(b)
			dst = append(dst, b[len(b)-n:]...)
			b = b[:len(b)-n]
		}
		return dst
	}, Example{"REVERSE('abc')", "STRING NOT NULL", "cba"}),
	{
		Name: "SUBSTRING", Aliases: []string{"SUBSTR"}, Group: "string", Fails: false, Syntax: "SUBSTRING(string FROM start [FOR length]), SUBSTRING(string, start [, length])",
		Doc: "The characters from start on, counted from 1, from the end if negative; NULL if the length is negative.",
		Resolve: sigs(of(varying(0), wantText, wantInt), of(func(args []Arg) *row.Type {
			n := args[2].Const
			return varying(0)(args).Nullable(anyNullable(args) || n == nil || int64(n.X) < 0) // it is NULL if the length is negative
		}, wantText, wantInt, wantInt)),
		Compile: func(_ *Env, args []Code, t *row.Type) (Code, error) {
			if len(args) == 2 {
				return BytesCode(t, lift2(args[0].Bytes, args[1].Int, func(b []byte, pos int64) []byte { return substring(b, pos, 1<<31-1) })), nil
			}
			return BytesCode(t, try3(args[0].Bytes, args[1].Int, args[2].Int, func(b []byte, pos, n int64) ([]byte, bool) {
				if n < 0 {
					return nil, false
				}
				return substring(b, pos, n), true
			})), nil
		},
		Examples: []Example{{"SUBSTRING('abcd' FROM 2 FOR 2)", "VARCHAR(4) NOT NULL", "bc"}},
	},
	{
		Name: "LEFT", Group: "string", Syntax: "LEFT(string, length)", Doc: "The first characters; empty if the length is negative.",
		Resolve: sigs(of(varying(0), wantText, wantInt)),
		Compile: func(_ *Env, args []Code, t *row.Type) (Code, error) {
			return BytesCode(t, lift2(args[0].Bytes, args[1].Int, func(b []byte, n int64) []byte {
				return b[:runeOffset(b, int(max(n, 0)))]
			})), nil
		},
		Examples: []Example{{"LEFT('abc', 2)", "VARCHAR(3) NOT NULL", "ab"}},
	},
	{
		Name: "RIGHT", Group: "string", Syntax: "RIGHT(string, length)", Doc: "The last characters; empty if the length is negative.",
		Resolve: sigs(of(varying(0), wantText, wantInt)),
		Compile: func(_ *Env, args []Code, t *row.Type) (Code, error) {
			return BytesCode(t, lift2(args[0].Bytes, args[1].Int, func(b []byte, n int64) []byte {
				skip := int64(utf8.RuneCount(b)) - max(n, 0)
				return b[runeOffset(b, int(max(skip, 0))):]
			})), nil
		},
		Examples: []Example{{"RIGHT('abc', 2)", "VARCHAR(3) NOT NULL", "bc"}},
	},
	{
		Name: "POSITION", Group: "string", Syntax: "POSITION(part IN string)", Doc: "Where the part first stands, counted from 1; 0 if nowhere.",
		Resolve: sigs(sig{args: []want{wantText, wantText, wantInt}, optional: 1, result: strictly(row.Int())}), Compile: compileLocate(0, 1),
		Examples: []Example{{"POSITION('c' IN 'abc')", "INT NOT NULL", "3"}},
	},
	{
		Name: "LOCATE", Group: "string", Syntax: "LOCATE(part, string [, start])", Doc: "Where the part first stands, from start on, counted from 1; 0 if nowhere.",
		Resolve: sigs(sig{args: []want{wantText, wantText, wantInt}, optional: 1, result: strictly(row.Int())}), Compile: compileLocate(0, 1),
		Examples: []Example{{"LOCATE('a', 'banana', 3)", "INT NOT NULL", "4"}},
	},
	{
		Name: "INSTR", Group: "string", Syntax: "INSTR(string, part)", Doc: "Where the part first stands, counted from 1; 0 if nowhere.",
		Resolve: sigs(of(strictly(row.Int()), wantText, wantText)), Compile: compileLocate(1, 0),
		Examples: []Example{{"INSTR('banana', 'n')", "INT NOT NULL", "3"}},
	},
	{
		Name: "REPEAT", Group: "string", Fails: true, Syntax: "REPEAT(string, times)", Doc: "The text that many times; empty if times is not positive.",
		Resolve: sigs(of(strictly(row.String()), wantText, wantInt)),
		Compile: func(env *Env, args []Code, t *row.Type) (Code, error) {
			at := env.Place
			return BytesCode(t, lift2(args[0].Bytes, args[1].Int, func(b []byte, n int64) []byte {
				if n > 0 && int64(len(b))*n > maxText {
					at.failf("REPEAT: %d times %d bytes is more than %d", n, len(b), maxText)
				}
				dst := env.Arena.Begin()
				if len(b) > 0 {
					for ; n > 0; n-- {
						dst = append(dst, b...)
					}
				}
				return env.Arena.Keep(dst)
			})), nil
		},
		Examples: []Example{{"REPEAT('ab', 3)", "STRING NOT NULL", "ababab"}},
	},
	{
		Name: "REPLACE", Group: "string", Syntax: "REPLACE(string, search, replacement)", Doc: "The text with each search in it replaced.",
		Resolve: sigs(of(strictly(row.String()), wantText, wantText, wantText)),
		Compile: text3(func(env *Env, s, old, by []byte) ([]byte, bool) {
			if len(old) == 0 {
				return env.Arena.Keep(appendBetween(env.Arena.Begin(), s, by)), true
			}
			i := bytes.Index(s, old)
			if i < 0 {
				return s, true
			}
			dst := env.Arena.Begin()
			for ; i >= 0; i = bytes.Index(s, old) {
				dst = append(append(dst, s[:i]...), by...)
				s = s[i+len(old):]
			}
			return env.Arena.Keep(append(dst, s...)), true
		}),
		Examples: []Example{{"REPLACE('hello', 'l', 'L')", "STRING NOT NULL", "heLLo"}},
	},
	{
		Name: "TRANSLATE", Group: "string", Syntax: "TRANSLATE(string, from, to)", Doc: "Each character of from replaced by the one at its place in to, or taken out if there is none. NULL stands for no character.",
		Resolve: sigs(of(strictly(row.String()), wantText, wantText, wantText)),
		Compile: func(env *Env, args []Code, t *row.Type) (Code, error) {
			return BytesCode(t, func(r *row.Row) ([]byte, bool) {
				s, ok := args[0].Bytes(r)
				from, some := args[1].Bytes(r)
				to, all := args[2].Bytes(r)
				if !ok || !some {
					return s, ok // nothing to replace
				}
				if !all {
					to = nil
				}
				return translate(env, s, from, to), true
			}), nil
		},
		Examples: []Example{{"TRANSLATE('abcba', 'ab', 'x')", "STRING NOT NULL", "xcx"}},
	},
	{
		Name: "OVERLAY", Group: "string", Syntax: "OVERLAY(string PLACING replacement FROM start [FOR length])",
		Doc:     "The text with length characters (as many as the replacement has) from start on replaced; unchanged if start is not within it.",
		Resolve: sigs(of(bothLengths, wantText, wantText, wantInt), of(bothLengths, wantText, wantText, wantInt, wantInt)),
		Compile: func(env *Env, args []Code, t *row.Type) (Code, error) {
			return BytesCode(t, func(r *row.Row) ([]byte, bool) {
				s, ok1 := args[0].Bytes(r)
				by, ok2 := args[1].Bytes(r)
				start, ok3 := args[2].Int(r)
				if !ok1 || !ok2 || !ok3 {
					return nil, false
				}
				n := int64(utf16Len(by))
				if len(args) == 4 {
					var ok bool
					if n, ok = args[3].Int(r); !ok {
						return nil, false
					}
				}
				length := int64(utf16Len(s))
				if start <= 0 || start > length {
					return s, true
				}
				dst := append(appendUTF16(env.Arena.Begin(), s, 0, start-1), by...)
				if n > 0 { // else the rest is dropped, as in Flink
					dst = appendUTF16(dst, s, start-1+n, length)
				}
				return env.Arena.Keep(dst), true
			}), nil
		},
		Examples: []Example{{"OVERLAY('abcd' PLACING 'XX' FROM 2)", "VARCHAR(6) NOT NULL", "aXXd"}},
	},
	{
		Name: "TRIM", Group: "string", Syntax: "TRIM([BOTH | LEADING | TRAILING] [characters FROM] string)", Doc: "The text without those characters (blanks) at its ends.",
		Resolve: sigs(of(varying(2), wantWord, wantText, wantText)),
		Compile: func(_ *Env, args []Code, t *row.Type) (Code, error) {
			where, _ := constText(args[0])
			return BytesCode(t, lift2(args[1].Bytes, args[2].Bytes, func(set, b []byte) []byte {
				if where != "TRAILING" {
					b = trimLeft(b, set)
				}
				if where != "LEADING" {
					b = trimRight(b, set)
				}
				return b
			})), nil
		},
		Examples: []Example{{"TRIM('  a b  ')", "VARCHAR(7) NOT NULL", "a b"}},
	},
	trimFunc("LTRIM", varying(0), "left end", true, false, Example{"LTRIM('xxyab', 'xy')", "VARCHAR(5) NOT NULL", "ab"}),
	trimFunc("RTRIM", varying(0), "right end", false, true, Example{"RTRIM(' a  ')", "VARCHAR(4) NOT NULL", " a"}),
	trimFunc("BTRIM", strictly(row.String()), "ends", true, true, Example{"BTRIM('xxabxx', 'x')", "STRING NOT NULL", "ab"}),
	padFunc("LPAD", true, "The text filled on the left with the pad to that many characters, or cut to them; NULL if the length is negative or the pad empty.",
		Example{"LPAD('7', 3, '0')", "STRING NOT NULL", "007"}),
	padFunc("RPAD", false, "The text filled on the right with the pad to that many characters, or cut to them; NULL if the length is negative or the pad empty.",
		Example{"RPAD('7', 3, 'ab')", "STRING NOT NULL", "7ab"}),
	{
		Name: "SPLIT_INDEX", Group: "string", Syntax: "SPLIT_INDEX(string, separator, index)", Doc: "The part at that index, counted from 0, of the text split at the separator; NULL if there is none.",
		Resolve: sigs(of(nullable(row.String()), wantText, wantText, wantInt), of(nullable(row.String()), wantText, wantInt, wantInt)),
		Compile: func(_ *Env, args []Code, t *row.Type) (Code, error) {
			sep := args[1].Bytes
			if sep == nil {
				sep = lift1(args[1].Int, func(c int64) []byte { return utf8.AppendRune(nil, rune(c)) })
			}
			return BytesCode(t, try3(args[0].Bytes, sep, args[2].Int, func(b, sep []byte, n int64) ([]byte, bool) {
				if n < 0 || len(b) == 0 {
					return nil, false
				}
				for ; ; n-- {
					i := -1
					if len(sep) > 0 {
						i = bytes.Index(b, sep)
					}
					switch {
					case n == 0 && i < 0:
						return b, true
					case n == 0:
						return b[:i:i], true
					case i < 0:
						return nil, false
					}
					b = b[i+len(sep):]
				}
			})), nil
		},
		Examples: []Example{{"SPLIT_INDEX('a,b,c', ',', 1)", "STRING", "b"}},
	},
	{
		Name: "SPLIT", Group: "string", Syntax: "SPLIT(string, separator)", Doc: "The parts of the text between the separators; with an empty separator, its characters.",
		Resolve: sigs(of(strictly(row.Array(row.String())), wantText, wantText)),
		Compile: func(env *Env, args []Code, t *row.Type) (Code, error) {
			w := newArrayWriter(t)
			return BytesCode(t, lift2(args[0].Bytes, args[1].Bytes, func(b, sep []byte) []byte {
				w.begin()
				if len(b) == 0 {
					return w.finish(env)
				}
				for len(sep) == 0 && len(b) > 0 {
					n := runeOffset(b, 1)
					w.add(Const{B: b[:n]})
					b = b[n:]
				}
				for len(sep) > 0 {
					i := bytes.Index(b, sep)
					if i < 0 {
						w.add(Const{B: b})
						break
					}
					w.add(Const{B: b[:i]})
					b = b[i+len(sep):]
				}
				return w.finish(env)
			})), nil
		},
		Examples: []Example{{"SPLIT('a,b,,c', ',')", "ARRAY<STRING> NOT NULL", `["a", "b", "", "c"]`}},
	},
	{
		Name: "STR_TO_MAP", Group: "string", Syntax: "STR_TO_MAP(string [, separator of entries, separator of key and value])",
		Doc:     "A map of entries such as a=1,b=2. The later of two equal keys counts; an entry without value has NULL.",
		Resolve: sigs(of(nullable(row.Map(row.String(), row.String())), wantText), of(nullable(row.Map(row.String(), row.String())), wantText, wantText, wantText)),
		Compile: func(env *Env, args []Code, t *row.Type) (Code, error) {
			list, pair := constGet([]byte(",")), constGet([]byte("="))
			if len(args) == 3 {
				list, pair = args[1].Bytes, args[2].Bytes
			}
			m := newMapWriter(t)
			return BytesCode(t, lift3(args[0].Bytes, list, pair, func(b, list, pair []byte) []byte {
				m.begin()
				for _, e := range splitBytes(b, list) {
					key, value, ok := bytes.Cut(e, pair)
					m.put(Const{B: key}, Const{Null: !ok, B: value})
				}
				return m.finish(env)
			})), nil
		},
		Examples: []Example{{"STR_TO_MAP('a=1,b=2')", "MAP<STRING, STRING>", `[["a", "1"], ["b", "2"]]`}},
	},
	{
		Name: "ASCII", Group: "string", Syntax: "ASCII(string)", Doc: "The first byte as a number, 0 of an empty text.",
		Resolve: sigs(of(strictly(row.Int()), wantText)),
		Compile: textInt(func(b []byte) int64 {
			if len(b) == 0 {
				return 0
			}
			return int64(int8(b[0]))
		}),
		Examples: []Example{{"ASCII('abc')", "INT NOT NULL", "97"}},
	},
	{
		Name: "CHR", Group: "string", Syntax: "CHR(integer)", Doc: "The character of that number modulo 256; empty of a negative one.",
		Resolve: sigs(of(nullable(row.String()), wantInteger)),
		Compile: func(env *Env, args []Code, t *row.Type) (Code, error) {
			return BytesCode(t, lift1(args[0].Int, func(n int64) []byte {
				dst := env.Arena.Begin()
				if n >= 0 {
					dst = utf8.AppendRune(dst, rune(n&0xff))
				}
				return env.Arena.Keep(dst)
			})), nil
		},
		Examples: []Example{{"CHR(65)", "STRING", "A"}},
	},
	prefixFunc("STARTSWITH", "Says whether the first text, or bytes, starts with the second.", bytes.HasPrefix, Example{"STARTSWITH('abc', 'ab')", "BOOLEAN NOT NULL", "true"}),
	prefixFunc("ENDSWITH", "Says whether the first text, or bytes, ends with the second.", bytes.HasSuffix, Example{"ENDSWITH('abc', 'bc')", "BOOLEAN NOT NULL", "true"}),
	text1("TO_BASE64", strictly(row.String()), "The text in base 64.", base64.StdEncoding.AppendEncode, Example{"TO_BASE64('hi')", "STRING NOT NULL", "aGk="}),
	{
		Name: "FROM_BASE64", Group: "string", Fails: true, Syntax: "FROM_BASE64(string)", Doc: "The text of its base 64 form. It fails for a text that is not in base 64.",
		Resolve: sigs(of(strictly(row.String()), wantText)),
		Compile: func(env *Env, args []Code, t *row.Type) (Code, error) {
			at := env.Place
			return BytesCode(t, lift1(args[0].Bytes, func(b []byte) []byte {
				enc := base64.StdEncoding
				if len(b)%4 != 0 {
					enc = base64.RawStdEncoding
				}
				dst, err := enc.AppendDecode(env.Arena.Begin(), b)
				if err != nil {
					at.failf("FROM_BASE64: decode '%s': it is not in base 64", b)
				}
				return env.Arena.Keep(dst)
			})), nil
		},
		Examples: []Example{{"FROM_BASE64('aGk=')", "STRING NOT NULL", "hi"}},
	},
	{
		Name: "HEX", Group: "string", Syntax: "HEX(integer | string)", Doc: "The integer, or the bytes of the text, in hexadecimal digits.",
		Resolve: sigs(of(strictly(row.String()), wantInteger), of(strictly(row.String()), wantStringy)),
		Compile: func(env *Env, args []Code, t *row.Type) (Code, error) {
			if args[0].Int != nil {
				return BytesCode(t, lift1(args[0].Int, func(n int64) []byte {
					b := strconv.AppendUint(env.Arena.Begin(), uint64(n), 16)
					for i, c := range b {
						if c >= 'a' {
							b[i] = c &^ 0x20
						}
					}
					return env.Arena.Keep(b)
				})), nil
			}
			return BytesCode(t, lift1(args[0].Bytes, func(b []byte) []byte {
				dst := env.Arena.Begin()
				for _, c := range b {
					dst = append(dst, "0123456789ABCDEF"[c>>4], "0123456789ABCDEF"[c&15])
				}
				return env.Arena.Keep(dst)
			})), nil
		},
		Examples: []Example{{"HEX(255)", "STRING NOT NULL", "FF"}, {"HEX('abc')", "STRING NOT NULL", "616263"}},
	},
	{
		Name: "UNHEX", Group: "string", Syntax: "UNHEX(string)", Doc: "The bytes that the hexadecimal digits stand for; NULL if there is another character.",
		Resolve: sigs(of(nullable(row.Bytes()), wantText)),
		Compile: func(env *Env, args []Code, t *row.Type) (Code, error) {
			return BytesCode(t, try1(args[0].Bytes, func(b []byte) ([]byte, bool) {
				dst := env.Arena.Begin()
				if len(b)%2 == 1 {
					var first [1]byte
					if _, err := hex.Decode(first[:], []byte{'0', b[0]}); err != nil {
						return nil, false
					}
					dst, b = append(dst, first[0]), b[1:]
				}
				dst, err := hex.AppendDecode(dst, b)
				if err != nil {
					return nil, false
				}
				return env.Arena.Keep(dst), true
			})), nil
		},
		Examples: []Example{{"UNHEX('616263')", "BYTES", "x'616263'"}},
	},
	{
		Name: "ENCODE", Group: "string", Fails: true, Syntax: "ENCODE(string, charset)", Doc: "The text as bytes of a character set: US-ASCII, ISO-8859-1, UTF-8, UTF-16BE, UTF-16LE or UTF-16.",
		Resolve: sigs(of(strictly(row.Bytes()), wantText, wantText)),
		Compile: func(env *Env, args []Code, t *row.Type) (Code, error) {
			at := env.Place
			return BytesCode(t, lift2(args[0].Bytes, args[1].Bytes, func(b, charset []byte) []byte {
				dst, ok := encodeText(env.Arena.Begin(), b, string(charset))
				if !ok {
					at.failf("ENCODE: unknown character set '%s'", charset)
				}
				return env.Arena.Keep(dst)
			})), nil
		},
		Examples: []Example{{"ENCODE('a', 'UTF-16BE')", "BYTES NOT NULL", "x'0061'"}},
	},
	{
		Name: "DECODE", Group: "string", Fails: true, Syntax: "DECODE(bytes, charset)", Doc: "The text of bytes in a character set, see ENCODE.",
		Resolve: sigs(of(strictly(row.String()), wantBinary, wantText)),
		Compile: func(env *Env, args []Code, t *row.Type) (Code, error) {
			at := env.Place
			return BytesCode(t, lift2(args[0].Bytes, args[1].Bytes, func(b, charset []byte) []byte {
				dst, ok := decodeText(env.Arena.Begin(), b, string(charset))
				if !ok {
					at.failf("DECODE: unknown character set '%s'", charset)
				}
				return env.Arena.Keep(dst)
			})), nil
		},
		Examples: []Example{{"DECODE(X'6162', 'UTF-8')", "STRING NOT NULL", "ab"}},
	},
	{
		Name: "ELT", Group: "string", Nulls: Custom, Syntax: "ELT(index, value1, ..)", Doc: "The value at that index, counted from 1; NULL if there is none.",
		Resolve: func(args []Arg) (Resolved, error) {
			if len(args) < 2 || wantInteger.fit(args[0]) == nil {
				return Resolved{}, mismatch(args, []sig{of(nil, wantInteger, wantStringy).many()})
			}
			t, types, err := oneType(args[1:], 1)
			if err != nil || !t.Kind().Text() && !t.Kind().Bytes() {
				return Resolved{}, mismatch(args, []sig{of(nil, wantInteger, wantStringy).many()})
			}
			return Resolved{append([]*row.Type{wantInteger.fit(args[0])}, types...), t.Nullable(true)}, nil
		},
		Compile: func(_ *Env, args []Code, t *row.Type) (Code, error) {
			return BytesCode(t, func(r *row.Row) ([]byte, bool) {
				i, ok := args[0].Int(r)
				if !ok || i < 1 || i >= int64(len(args)) {
					return nil, false
				}
				return args[i].Bytes(r)
			}), nil
		},
		Examples: []Example{{"ELT(2, 'a', 'b', 'c')", "CHAR(1)", "b"}},
	},
	{
		Name: "PRINTF", Group: "string", Fails: true, Nulls: Custom, Syntax: "PRINTF(format, value, ..)", Doc: "The values in a text, as Java's String.format has it: %s, %d, %x, %c, %b, %f, %e, %n, %%.",
		Resolve: sigs(of(nullable(row.String()), wantText), of(nullable(row.String()), wantText, wantAny).many()),
		Compile: compilePrintf, Examples: []Example{{"PRINTF('%d-%s', 5, 'x')", "STRING", "5-x"}},
	},
	text1("URL_ENCODE", nullable(row.String()), "The text with bytes that may not stand in a URL as %XX, blanks as +.", func(dst, b []byte) []byte {
		return append(dst, strings.NewReplacer("%2A", "*", "~", "%7E").Replace(url.QueryEscape(string(b)))...)
	}, Example{"URL_ENCODE('a b&c')", "STRING", "a+b%26c"}),
	{
		Name: "URL_DECODE", Group: "string", Syntax: "URL_DECODE(string)", Doc: "The text of its form in a URL; NULL if it has a wrong %XX.",
		Resolve: sigs(of(nullable(row.String()), wantText)),
		Compile: func(env *Env, args []Code, t *row.Type) (Code, error) {
			return BytesCode(t, try1(args[0].Bytes, func(b []byte) ([]byte, bool) {
				s, err := url.QueryUnescape(string(b))
				if err != nil {
					return nil, false
				}
				return env.keep(s), true
			})), nil
		},
		Examples: []Example{{"URL_DECODE('a+b%26c')", "STRING", "a b&c"}},
	},
	{
		Name: "PARSE_URL", Group: "string", Syntax: "PARSE_URL(url, part [, key])", Doc: "A part of a URL: HOST, PATH, QUERY, REF, PROTOCOL, FILE, AUTHORITY, USERINFO; with QUERY also the value of a key.",
		Resolve: sigs(of(nullable(row.String()), wantText, wantText), of(nullable(row.String()), wantText, wantText, wantText)),
		Compile: func(env *Env, args []Code, t *row.Type) (Code, error) {
			if len(args) == 2 {
				return BytesCode(t, try2(args[0].Bytes, args[1].Bytes, func(u, part []byte) ([]byte, bool) {
					s, ok := urlPart(string(u), string(part))
					return env.keep(s), ok
				})), nil
			}
			return BytesCode(t, try3(args[0].Bytes, args[1].Bytes, args[2].Bytes, func(u, part, key []byte) ([]byte, bool) {
				if string(part) != "QUERY" {
					return nil, false
				}
				q, ok := urlPart(string(u), "QUERY")
				for ok && q != "" {
					var pair string
					pair, q, _ = strings.Cut(q, "&")
					if k, v, found := strings.Cut(pair, "="); found && k == string(key) {
						return env.keep(v), true
					}
				}
				return nil, false
			})), nil
		},
		Examples: []Example{{"PARSE_URL('http://h.example/p?x=1', 'HOST')", "STRING", "h.example"}},
	},
	{
		Name: "UUID", Group: "string", Nulls: Never, Purity: Volatile, Syntax: "UUID()", Doc: "A random UUID (version 4), another one for each row.",
		Resolve: sigs(of(notNull(row.Char(36)))),
		Compile: func(env *Env, _ []Code, t *row.Type) (Code, error) {
			return BytesCode(t, func(*row.Row) ([]byte, bool) {
				x, y := env.Rand(), env.Rand()
				x = x&^0xf000 | 0x4000
				y = y&^(3<<62) | 1<<63
				return env.Arena.Keep(fmt.Appendf(env.Arena.Begin(), "%08x-%04x-%04x-%04x-%012x", x>>32, x>>16&0xffff, x&0xffff, y>>48, y&(1<<48-1))), true
			}), nil
		},
	},
	isFunc("IS_ALPHA", "Says whether the text has letters only, and one at least.", func(s []byte) bool { return allRunes(s, unicode.IsLetter) }, Example{"IS_ALPHA('abc')", "BOOLEAN NOT NULL", "true"}),
	isFunc("IS_DIGIT", "Says whether the text has digits only, and one at least.", func(s []byte) bool { return allRunes(s, unicode.IsDigit) }, Example{"IS_DIGIT('12')", "BOOLEAN NOT NULL", "true"}),
	isFunc("IS_DECIMAL", "Says whether the text is a number.", func(s []byte) bool { _, err := row.ParseDouble(s, 64); return err == nil }, Example{"IS_DECIMAL('1.5')", "BOOLEAN NOT NULL", "true"}),
}

// maxText is the most bytes that a function makes of a short text.
const maxText = 64 << 20

func isFunc(name, doc string, f func(b []byte) bool, examples ...Example) *Func {
	return &Func{
		Name: name, Group: "string", Nulls: Never, Syntax: name + "(string)", Doc: doc + " FALSE for NULL.", Examples: examples,
		Resolve: sigs(of(notNull(row.Boolean()), wantText)),
		Compile: func(_ *Env, args []Code, t *row.Type) (Code, error) {
			get := args[0].Bytes
			return CondCode(t, func(r *row.Row) Tri {
				b, ok := get(r)
				return truth(ok && f(b))
			}), nil
		},
	}
}

func allRunes(b []byte, f func(rune) bool) bool {
	for _, c := range string(b) {
		if !f(c) {
			return false
		}
	}
	return len(b) > 0
}

func compileConcat(env *Env, args []Code, t *row.Type) (Code, error) {
	if len(args) == 2 {
		return BytesCode(t, lift2(args[0].Bytes, args[1].Bytes, func(a, b []byte) []byte {
			return env.Arena.Keep(append(append(env.Arena.Begin(), a...), b...))
		})), nil
	}
	parts := make([][]byte, len(args))
	return BytesCode(t, func(r *row.Row) ([]byte, bool) {
		for i := range args {
			b, ok := args[i].Bytes(r)
			if !ok {
				return nil, false
			}
			parts[i] = b
		}
		dst := env.Arena.Begin()
		for _, b := range parts {
			dst = append(dst, b...)
		}
		return env.Arena.Keep(dst), true
	}), nil
}

func isASCII(b []byte) bool {
	for _, c := range b {
		if c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// upperSpecial has the letters that become several.
var upperSpecial = strings.NewReplacer("\u00df", "SS", "\u0149", "\u02bcN", "\ufb00", "FF", "\ufb01", "FI", "\ufb02", "FL", "\ufb03", "FFI", "\ufb04", "FFL", "\ufb05", "ST", "\ufb06", "ST")

func appendUpper(dst, b []byte) []byte {
	if at := len(dst); isASCII(b) {
		dst = append(dst, b...)
		for i, c := range dst[at:] {
			if c >= 'a' && c <= 'z' {
				dst[at+i] = c &^ 0x20
			}
		}
		return dst
	}
	return append(dst, strings.ToUpper(upperSpecial.Replace(string(b)))...)
}

func appendInitcap(dst, b []byte) []byte {
	start := true
	for _, c := range b {
		switch {
		case c >= 'a' && c <= 'z':
			if start {
				c &^= 0x20
			}
			start = false
		case c >= 'A' && c <= 'Z':
			if !start {
				c |= 0x20
			}
			start = false
		default:
			start = c < '0' || c > '9'
		}
		dst = append(dst, c)
	}
	return dst
}

// substring is n characters from pos on, counted from 1, from the end if negative; pos 0 is 1.
func substring(b []byte, pos, n int64) []byte {
	switch {
	case pos < 0:
		pos += int64(utf8.RuneCount(b))
		if pos < 0 {
			return b[:0]
		}
	case pos > 0:
		pos--
	}
	b = b[runeOffset(b, int(pos)):]
	if n < int64(len(b)) {
		end := runeOffset(b, int(n))
		b = b[:end:end]
	}
	return b
}

func compileLocate(part, text int) func(*Env, []Code, *row.Type) (Code, error) {
	return func(_ *Env, args []Code, t *row.Type) (Code, error) {
		start := constGet[int64](1)
		if len(args) == 3 {
			start = args[2].Int
		}
		return IntCode(t, lift3(args[part].Bytes, args[text].Bytes, start, func(part, b []byte, start int64) int64 {
			if len(part) == 0 {
				return 1
			}
			at := runeOffset(b, int(max(int32(start)-1, 0)))
			i := bytes.Index(b[at:], part)
			if i < 0 || at == len(b) && start > 1 {
				return 0
			}
			return int64(utf8.RuneCount(b[:at+i])) + 1
		})), nil
	}
}

// translate replaces each character of from by the one at its place in to.
func translate(env *Env, s, from, to []byte) []byte {
	dst := env.Arena.Begin()
	for len(s) > 0 {
		_, n := utf8.DecodeRune(s)
		if i := bytes.Index(from, s[:n]); i < 0 {
			dst = append(dst, s[:n]...)
		} else {
			k := utf8.RuneCount(from[:i])
			if at := runeOffset(to, k); at < len(to) {
				dst = append(dst, to[at:at+runeOffset(to[at:], 1)]...)
			}
		}
		s = s[n:]
	}
	return env.Arena.Keep(dst)
}

// appendBetween puts by in front of, between and behind the UTF-16 units of s, as Java's replace of an empty text does.
func appendBetween(dst, s, by []byte) []byte {
	dst = append(dst, by...)
	for len(s) > 0 {
		c, n := utf8.DecodeRune(s)
		if c > 0xffff {
			hi, lo := utf16.EncodeRune(c)
			dst = row.AppendSurrogate(append(row.AppendSurrogate(dst, hi), by...), lo)
		} else {
			dst = append(dst, s[:n]...)
		}
		dst = append(dst, by...)
		s = s[n:]
	}
	return dst
}

func trimLeft(b, set []byte) []byte {
	for len(b) > 0 {
		n := runeOffset(b, 1)
		if !bytes.Contains(set, b[:n]) {
			break
		}
		b = b[n:]
	}
	return b
}

func trimRight(b, set []byte) []byte {
	for len(b) > 0 {
		_, n := utf8.DecodeLastRune(b)
		if !bytes.Contains(set, b[len(b)-n:]) {
			break
		}
		b = b[:len(b)-n]
	}
	return b
}

func trimFunc(name string, res result, where string, left, right bool, examples ...Example) *Func {
	return &Func{
		Name: name, Group: "string", Syntax: name + "(string [, characters])", Doc: "The text without those characters (blanks) at its " + where + ".", Examples: examples,
		Resolve: sigs(of(res, wantText), of(res, wantText, wantText)),
		Compile: func(_ *Env, args []Code, t *row.Type) (Code, error) {
			set := constGet([]byte(" "))
			if len(args) == 2 {
				set = args[1].Bytes
			}
			return BytesCode(t, lift2(args[0].Bytes, set, func(b, set []byte) []byte {
				if left {
					b = trimLeft(b, set)
				}
				if right {
					b = trimRight(b, set)
				}
				return b
			})), nil
		},
	}
}

// utf16Len is the length of Java's form of a text: characters beyond 16 bits count two.
func utf16Len(b []byte) int {
	n := 0
	for len(b) > 0 {
		c, size := utf8.DecodeRune(b)
		b = b[size:]
		n++
		if c > 0xffff {
			n++
		}
	}
	return n
}

// appendUTF16 appends the units from lo to hi of Java's form of a text. Half a pair becomes a lone surrogate.
func appendUTF16(dst, b []byte, lo, hi int64) []byte {
	for at := int64(0); len(b) > 0 && at < hi; {
		c, size := utf8.DecodeRune(b)
		switch {
		case c <= 0xffff:
			if at >= lo {
				dst = append(dst, b[:size]...)
			}
			at++
		case at >= lo && at+2 <= hi:
			dst = append(dst, b[:size]...)
			at += 2
		default:
			first, second := utf16.EncodeRune(c)
			if at >= lo {
				dst = row.AppendSurrogate(dst, first)
			} else if at+1 >= lo && at+1 < hi {
				dst = row.AppendSurrogate(dst, second)
			}
			at += 2
		}
		b = b[size:]
	}
	return dst
}

func padFunc(name string, left bool, doc string, examples ...Example) *Func {
	return &Func{
		Name: name, Group: "string", Fails: true, Syntax: name + "(string, length, pad)", Doc: doc, Examples: examples,
		Resolve: sigs(of(strictly(row.String()), wantText, wantInt, wantText)),
		Compile: func(env *Env, args []Code, t *row.Type) (Code, error) {
			at := env.Place
			return BytesCode(t, try3(args[0].Bytes, args[1].Int, args[2].Bytes, func(b []byte, n int64, pad []byte) ([]byte, bool) {
				if n < 0 || len(pad) == 0 {
					return nil, at.noValue(name, t)
				}
				if n > maxText {
					at.failf("%s: %d characters are more than %d", name, n, maxText)
				}
				// Characters are counted as Java does.
				fill := n - int64(utf16Len(b))
				if fill <= 0 {
					return env.Arena.Keep(appendUTF16(env.Arena.Begin(), b, 0, n)), true
				}
				dst := env.Arena.Begin()
				if !left {
					dst = append(dst, b...)
				}
				for each := int64(utf16Len(pad)); fill > 0; fill -= each {
					dst = appendUTF16(dst, pad, 0, fill)
				}
				if left {
					dst = append(dst, b...)
				}
				return env.Arena.Keep(dst), true
			})), nil
		},
	}
}

func prefixFunc(name, doc string, f func(a, b []byte) bool, examples ...Example) *Func {
	return &Func{
		Name: name, Group: "string", Syntax: name + "(string, part)", Doc: doc, Examples: examples,
		Resolve: sigs(of(strictly(row.Boolean()), wantText, wantText), of(strictly(row.Boolean()), wantBinary, wantBinary)),
		Compile: func(_ *Env, args []Code, t *row.Type) (Code, error) {
			return BoolCode(t, lift2(args[0].Bytes, args[1].Bytes, f)), nil
		},
	}
}

func splitBytes(b, sep []byte) [][]byte {
	if len(b) == 0 {
		return nil
	}
	if len(sep) == 0 {
		return [][]byte{b}
	}
	return bytes.Split(b, sep)
}

func encodeText(dst, b []byte, charset string) ([]byte, bool) {
	name := strings.ToUpper(charset)
	switch name {
	case "UTF-8", "UTF8":
		return append(dst, b...), true
	case "US-ASCII", "ASCII", "ISO-8859-1", "LATIN1":
		limit := rune(0x100)
		if strings.HasSuffix(name, "ASCII") {
			limit = 0x80
		}
		for _, c := range string(b) {
			if c >= limit {
				c = '?'
			}
			dst = append(dst, byte(c))
		}
		return dst, true
	case "UTF-16", "UTF-16BE", "UTF-16LE":
		if name == "UTF-16" {
			dst = append(dst, 0xfe, 0xff)
		}
		for _, u := range utf16.Encode([]rune(string(b))) {
			if name == "UTF-16LE" {
				dst = append(dst, byte(u), byte(u>>8))
			} else {
				dst = append(dst, byte(u>>8), byte(u))
			}
		}
		return dst, true
	}
	return dst, false
}

// brokenRune is how many bytes at the start of b, which is no character, Java takes as one that is replaced: those that could begin one.
func brokenRune(b []byte) int {
	for n := min(len(b), 3); n > 1; n-- {
		for _, last := range []byte{0x80, 0x90, 0xa0, 0xbf} {
			whole := append(append([]byte{}, b[:n]...), last, last, last)
			if r, size := utf8.DecodeRune(whole); r != utf8.RuneError && size > n {
				return n
			}
		}
	}
	return 1
}

func decodeText(dst, b []byte, charset string) ([]byte, bool) {
	name := strings.ToUpper(charset)
	switch name {
	case "UTF-8", "UTF8":
		for len(b) > 0 {
			r, n := utf8.DecodeRune(b)
			if r == utf8.RuneError && n == 1 {
				n = brokenRune(b)
			}
			dst, b = utf8.AppendRune(dst, r), b[n:]
		}
		return dst, true
	case "US-ASCII", "ASCII", "ISO-8859-1", "LATIN1":
		for _, c := range b {
			r := rune(c)
			if c >= 0x80 && strings.HasSuffix(name, "ASCII") {
				r = utf8.RuneError
			}
			dst = utf8.AppendRune(dst, r)
		}
		return dst, true
	case "UTF-16", "UTF-16BE", "UTF-16LE":
		little := name == "UTF-16LE"
		if name == "UTF-16" && len(b) >= 2 && (b[0] == 0xfe && b[1] == 0xff || b[0] == 0xff && b[1] == 0xfe) {
			little = b[0] == 0xff
			b = b[2:]
		}
		units := make([]uint16, 0, len(b)/2)
		for ; len(b) >= 2; b = b[2:] {
			if little {
				units = append(units, uint16(b[0])|uint16(b[1])<<8)
			} else {
				units = append(units, uint16(b[0])<<8|uint16(b[1]))
			}
		}
		for _, c := range utf16.Decode(units) {
			dst = utf8.AppendRune(dst, c)
		}
		if len(b) > 0 {
			dst = utf8.AppendRune(dst, utf8.RuneError)
		}
		return dst, true
	}
	return dst, false
}

func urlPart(text, part string) (string, bool) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme == "" {
		return "", false
	}
	query := u.RawQuery
	switch part {
	case "HOST":
		return u.Hostname(), u.Host != ""
	case "PATH":
		return u.EscapedPath(), true
	case "QUERY":
		return query, query != ""
	case "REF":
		return u.EscapedFragment(), u.Fragment != ""
	case "PROTOCOL":
		return u.Scheme, true
	case "FILE":
		if query != "" {
			return u.EscapedPath() + "?" + query, true
		}
		return u.EscapedPath(), true
	case "AUTHORITY":
		if u.User != nil {
			return u.User.String() + "@" + u.Host, true
		}
		return u.Host, u.Host != ""
	case "USERINFO":
		return u.User.String(), u.User != nil
	}
	return "", false
}

func compilePrintf(env *Env, args []Code, t *row.Type) (Code, error) {
	at := env.Place
	gets := valuesOf(args[1:])
	return BytesCode(t, func(r *row.Row) ([]byte, bool) {
		format, ok := args[0].Bytes(r)
		if !ok {
			return nil, false
		}
		values := make([]Const, len(gets))
		for i, get := range gets {
			values[i] = get(r)
		}
		var out []byte
		next := 0
		for len(format) > 0 {
			i := bytes.IndexByte(format, '%')
			if i < 0 {
				out = append(out, format...)
				break
			}
			out = append(out, format[:i]...)
			format = format[i+1:]
			end := bytes.IndexFunc(format, unicode.IsLetter)
			if k := bytes.IndexByte(format, '%'); k >= 0 && (end < 0 || k < end) {
				end = k
			}
			if end < 0 {
				return nil, false
			}
			flags, verb := string(format[:end]), format[end]
			format = format[end+1:]
			switch verb {
			case '%':
				out = append(out, '%')
				continue
			case 'n':
				out = append(out, '\n')
				continue
			}
			if next >= len(values) {
				return nil, false
			}
			v, typ := values[next], args[1+next].Type
			next++
			var ok bool
			if out, ok = printfValue(out, flags, verb, v, typ, env); !ok {
				at.failf("PRINTF: %%%s%c does not fit a value of type %s", flags, verb, typ.Text())
			}
		}
		return env.keep(string(out)), true
	}), nil
}

func printfValue(out []byte, flags string, verb byte, v Const, t *row.Type, env *Env) ([]byte, bool) {
	flags = strings.ReplaceAll(flags, ",", "")
	if v.Null {
		return fmt.Appendf(out, "%"+flags+"s", "null"), true
	}
	c := ConstCode(t, v)
	switch {
	case verb == 's':
		text := row.AppendText(nil, t, v.X, v.Y, v.B, env.Zone)
		if t.Kind() == row.KindBoolean {
			text = bytes.ToLower(text)
		}
		return fmt.Appendf(out, "%"+flags+"s", text), true
	case verb == 'd' && t.Kind().Integer(), verb == 'o' && t.Kind().Integer():
		return fmt.Appendf(out, "%"+flags+string(verb), int64(v.X)), true
	case (verb == 'x' || verb == 'X') && t.Kind().Integer():
		u := v.X
		if t.Kind() == row.KindInt {
			u = uint64(uint32(u))
		}
		return fmt.Appendf(out, "%"+flags+string(verb), u), true
	case verb == 'c' && t.Kind().Integer():
		return fmt.Appendf(out, "%"+flags+"c", rune(v.X)), true
	case verb == 'b' && t.Kind() == row.KindBoolean:
		return fmt.Appendf(out, "%"+flags+"t", v.X != 0), true
	case verb == 'f' || verb == 'e' || verb == 'E':
		switch {
		case t.Kind().Approximate():
			f, _ := c.Float(nil)
			return fmt.Appendf(out, "%"+flags+string(verb), f), true
		case t.Kind() == row.KindDecimal:
			d, _ := c.Decs()(nil)
			return fmt.Appendf(out, "%"+flags+string(verb), d.ToDouble(t.Scale())), true
		}
	}
	return out, false
}
