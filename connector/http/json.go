package http

import (
	"encoding/json"
	"strconv"

	"github.com/millrace-stream/millrace/row"
)

// appendJSON appends the value of a key, which has the text that CAST gives it: numbers and booleans as such, all else as
// text.
func appendJSON(dst []byte, t *row.Type, v row.Value, text string) []byte {
	switch v := v.(type) {
	case nil:
		return append(dst, "null"...)
	case bool:
		return strconv.AppendBool(dst, v)
	case int64, row.Dec:
		if k := t.Kind(); k.Integer() || k == row.KindDecimal {
			return append(dst, text...)
		}
	}
	b, _ := json.Marshal(text) // of a text: it does not fail
	return append(dst, b...)
}
