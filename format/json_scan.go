package format

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// The scanners take the index of the first byte of something and return the index behind it. They check all of RFC
// 8259, UTF-8 and surrogate pairs. "left" counts how many levels of nesting are still allowed.

func skipSpace(src []byte, i int) int {
	for i < len(src) && (src[i] == ' ' || src[i] == '\n' || src[i] == '\t' || src[i] == '\r') {
		i++
	}
	return i
}

func wantEnd(src []byte, i int) *JSONError {
	if i = skipSpace(src, i); i < len(src) {
		return wanted(src, i, "want the end of the document")
	}
	return nil
}

func wanted(src []byte, i int, want string) *JSONError {
	return &JSONError{Offset: i, Want: want, Found: describe(src, i)}
}

// describe names what stands at src[i], for errors.
func describe(src []byte, i int) string {
	if i >= len(src) {
		return "the end of the input"
	}
	const most = 40
	clip := func(end int) string {
		if end-i > most {
			return strconv.Quote(string(src[i:i+most])) + "..."
		}
		return strconv.Quote(string(src[i:end]))
	}
	switch c := src[i]; {
	case c == '{':
		return "an object"
	case c == '[':
		return "an array"
	case c == '"':
		if end, _, err := scanString(src, i+1); err == nil {
			s := src[i : end+1]
			if len(s) > most {
				return "the string " + string(s[:most]) + "..."
			}
			return "the string " + string(s)
		}
		return "a broken string"
	case c == '-' || c >= '0' && c <= '9':
		if end, err := scanNumber(src, i); err == nil {
			if end-i > most {
				return "the number " + string(src[i:i+most]) + "..."
			}
			return "the number " + string(src[i:end])
		}
		return "a broken number"
	case c >= 'a' && c <= 'z':
		end := i
		for end < len(src) && src[end] >= 'a' && src[end] <= 'z' {
			end++
		}
		return clip(end)
	case c > ' ' && c < 0x7f:
		return strconv.Quote(string(rune(c)))
	default:
		return fmt.Sprintf("the byte 0x%02x", c)
	}
}

func scanLiteral(src []byte, i int, lit string) (int, *JSONError) {
	if len(src)-i < len(lit) || view(src[i:i+len(lit)]) != lit {
		return i, wanted(src, i, "want a JSON value")
	}
	return i + len(lit), nil
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// special marks the bytes of w that end the plain run of a string: quote, backslash, controls, non-ASCII (the high bit
// of such a byte stays in at least one of the last two terms). The lowest mark is exact, those above it may be false.
func special(w uint64) uint64 {
	return ((w - ones*0x20) | ((w ^ ones*'"') - ones) | ((w ^ ones*'\\') - ones)) & highs
}

// scanString takes the index behind the opening quote and returns that of the closing one.
func scanString(src []byte, i int) (end int, escaped bool, err *JSONError) {
	for {
		for i+8 <= len(src) {
			if m := special(binary.LittleEndian.Uint64(src[i:])); m != 0 {
				i += bits.TrailingZeros64(m) >> 3
				break
			}
			i += 8
		}
		if i >= len(src) {
			return i, false, wanted(src, i, "want a closing quote")
		}
		switch c := src[i]; {
		case c == '"':
			return i, escaped, nil
		case c == '\\':
			escaped = true
			if i, err = scanEscape(src, i); err != nil {
				return i, false, err
			}
		case c < ' ':
			return i, false, wanted(src, i, "want control characters escaped")
		case c >= utf8.RuneSelf:
			for i < len(src) && src[i] >= utf8.RuneSelf {
				r, n := utf8.DecodeRune(src[i:])
				if r == utf8.RuneError && n == 1 {
					return i, false, wanted(src, i, "want UTF-8")
				}
				i += n
			}
		default:
			i++
		}
	}
}

func scanEscape(src []byte, i int) (int, *JSONError) {
	if i+1 >= len(src) {
		return i, wanted(src, len(src), "want an escape sequence")
	}
	switch src[i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 2, nil
	case 'u':
		r, ok := hex4(src, i+2)
		if !ok {
			break
		}
		if !utf16.IsSurrogate(r) {
			return i + 6, nil
		}
		if i+7 < len(src) && src[i+6] == '\\' && src[i+7] == 'u' {
			if low, ok := hex4(src, i+8); ok && utf16.DecodeRune(r, low) != utf8.RuneError {
				return i + 12, nil
			}
		}
		return i, &JSONError{Offset: i, Want: "want a whole surrogate pair", Found: string(src[i : i+6])}
	}
	return i, &JSONError{Offset: i, Want: "want a valid escape sequence", Found: strconv.Quote(string(src[i:min(i+6, len(src))]))}
}

func hex4(src []byte, i int) (rune, bool) {
	if i+4 > len(src) {
		return 0, false
	}
	var r rune
	for _, c := range src[i : i+4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// unescape returns the text of a string that scanString has found valid.
func unescape(s []byte) string { return view(appendUnescaped(make([]byte, 0, len(s)), s)) }

// appendUnescaped is unescape behind out.
func appendUnescaped(out, s []byte) []byte {
	for i := 0; i < len(s); {
		c := s[i]
		if c != '\\' {
			out = append(out, c)
			i++
			continue
		}
		i += 2
		switch c = s[i-1]; c {
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			r, _ := hex4(s, i)
			i += 4
			if utf16.IsSurrogate(r) {
				low, _ := hex4(s, i+2)
				r = utf16.DecodeRune(r, low)
				i += 6
			}
			out = utf8.AppendRune(out, r)
		default:
			out = append(out, c)
		}
	}
	return out
}

// readString reads the string at src[i]; the result points into src if nothing is escaped.
func readString(src []byte, i int) (s string, end int, err *JSONError) {
	end, escaped, err := scanString(src, i+1)
	if err != nil {
		return "", end, err
	}
	if escaped {
		return unescape(src[i+1 : end]), end + 1, nil
	}
	if end == i+1 {
		return "", end + 1, nil // pins nothing
	}
	return view(src[i+1 : end]), end + 1, nil
}

func isDigit(src []byte, i int) bool { return i < len(src) && src[i]-'0' <= 9 }

func scanNumber(src []byte, i int) (int, *JSONError) {
	if i < len(src) && src[i] == '-' {
		i++
	}
	switch {
	case !isDigit(src, i):
		return i, wanted(src, i, "want a digit")
	case src[i] == '0':
		i++
		if isDigit(src, i) {
			return i, &JSONError{Offset: i, Want: "want a number without leading zeros"}
		}
	default:
		for isDigit(src, i) {
			i++
		}
	}
	if i < len(src) && src[i] == '.' {
		i++
		if !isDigit(src, i) {
			return i, wanted(src, i, "want a digit after the point")
		}
		for isDigit(src, i) {
			i++
		}
	}
	if i < len(src) && (src[i] == 'e' || src[i] == 'E') {
		i++
		if i < len(src) && (src[i] == '+' || src[i] == '-') {
			i++
		}
		if !isDigit(src, i) {
			return i, wanted(src, i, "want a digit in the exponent")
		}
		for isDigit(src, i) {
			i++
		}
	}
	return i, nil
}

func tooDeep(i int) *JSONError { return &JSONError{Offset: i, Want: "the document is nested too deep"} }

// skipValue checks the value at src[i] and keeps nothing of it.
func skipValue(src []byte, i, left int) (int, *JSONError) {
	if i >= len(src) {
		return i, wanted(src, i, "want a JSON value")
	}
	switch c := src[i]; c {
	case '"':
		end, _, err := scanString(src, i+1)
		return end + 1, err
	case '{':
		return skipObject(src, i, left)
	case '[':
		return skipArray(src, i, left)
	case 't':
		return scanLiteral(src, i, "true")
	case 'f':
		return scanLiteral(src, i, "false")
	case 'n':
		return scanLiteral(src, i, "null")
	default:
		if c == '-' || c-'0' <= 9 {
			return scanNumber(src, i)
		}
	}
	return i, wanted(src, i, "want a JSON value")
}

func skipArray(src []byte, i, left int) (int, *JSONError) {
	if left == 0 {
		return i, tooDeep(i)
	}
	i = skipSpace(src, i+1)
	if i < len(src) && src[i] == ']' {
		return i + 1, nil
	}
	for {
		var err *JSONError
		if i, err = skipValue(src, i, left-1); err != nil {
			return i, err
		}
		var more bool
		if i, more, err = afterElement(src, i, ']'); !more {
			return i, err
		}
	}
}

func skipObject(src []byte, i, left int) (int, *JSONError) {
	if left == 0 {
		return i, tooDeep(i)
	}
	i = skipSpace(src, i+1)
	if i < len(src) && src[i] == '}' {
		return i + 1, nil
	}
	for {
		if i >= len(src) || src[i] != '"' {
			return i, wanted(src, i, "want a field name")
		}
		end, _, err := scanString(src, i+1)
		if err != nil {
			return i, err
		}
		if i, err = afterName(src, end+1); err != nil {
			return i, err
		}
		if i, err = skipValue(src, i, left-1); err != nil {
			return i, err
		}
		var more bool
		if i, more, err = afterElement(src, i, '}'); !more {
			return i, err
		}
	}
}

// afterName passes the colon behind a field name.
func afterName(src []byte, i int) (int, *JSONError) {
	if i = skipSpace(src, i); i >= len(src) || src[i] != ':' {
		return i, wanted(src, i, "want ':'")
	}
	return skipSpace(src, i+1), nil
}

// afterElement passes the comma behind an element of an array or object, or the closing bracket: then more is false.
func afterElement(src []byte, i int, closing byte) (end int, more bool, err *JSONError) {
	if i = skipSpace(src, i); i < len(src) {
		switch src[i] {
		case ',':
			return skipSpace(src, i+1), true, nil
		case closing:
			return i + 1, false, nil
		}
	}
	return i, false, wanted(src, i, "want ',' or '"+string(rune(closing))+"'")
}
