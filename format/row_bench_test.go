package format

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/row"
)

// bidDoc is a bid of 300 bytes.
func bidDoc() []byte {
	return []byte(`{"auction":1001,"bidder":1023,"price":18814250,"channel":"channel-895","url":"https://shop.example/zhyv/kxn/bjymw/item.htm?query=1&channel_id=895","dateTime":"2024-03-09 23:59:07.934","rate":0.908,"extra":"` + strings.Repeat("szykea", 14) + `"}`)
}

// benchBid is the same for the codec of structs.
type benchBid struct {
	Auction  int64   `json:"auction"`
	Bidder   int64   `json:"bidder"`
	Price    int64   `json:"price"`
	Channel  string  `json:"channel"`
	URL      string  `json:"url"`
	DateTime string  `json:"dateTime"`
	Rate     float64 `json:"rate"`
	Extra    string  `json:"extra"`
}

type benchBid3 struct {
	Auction  int64     `json:"auction"`
	Price    int64     `json:"price"`
	DateTime time.Time `json:"-"`
}

func bidTable(names ...string) RowSchema {
	all := []any{"auction", row.BigInt(), "bidder", row.BigInt(), "price", row.BigInt(), "channel", row.String(), "url", row.String(),
		"dateTime", row.Timestamp(3), "rate", row.Double(), "extra", row.String()}
	var columns []any
	for i := 0; i < len(all); i += 2 {
		if len(names) == 0 || strings.Contains(strings.Join(names, " "), all[i].(string)) {
			columns = append(columns, all[i], all[i+1])
		}
	}
	return table(columns...)
}

func benchRowDecode(b *testing.B, s RowSchema, f RowFormat, doc []byte) {
	d := mustDecoder(b, f, s)
	r := s.Layout.New()
	next := func() *row.Row {
		for i := range s.Layout.Len() {
			r.SetNull(i)
		}
		return r
	}
	b.ReportAllocs()
	b.SetBytes(int64(len(doc)))
	for b.Loop() {
		if err := d.Decode(doc, next); err != nil {
			b.Fatal(err)
		}
	}
}

func benchRowEncode(b *testing.B, s RowSchema, f RowFormat, doc []byte) {
	r := nullRow(s.Layout)
	if err := mustDecoder(b, f, s).Decode(doc, func() *row.Row { return r }); err != nil {
		b.Fatal(err)
	}
	e := mustEncoder(b, f, s)
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		var err error
		if dst, err = e.Append(dst[:0], r); err != nil {
			b.Fatal(err)
		}
	}
	if len(dst) < len(doc)/2 {
		b.Fatalf("%s", dst)
	}
}

func BenchmarkRowJSON(b *testing.B) {
	f := rowFormat(b, JSONRows())
	b.Run("decode8", func(b *testing.B) { benchRowDecode(b, bidTable(), f, bidDoc()) })
	b.Run("decode3", func(b *testing.B) { benchRowDecode(b, bidTable("auction", "price", "dateTime"), f, bidDoc()) })
	b.Run("decode0", func(b *testing.B) { benchRowDecode(b, bidTable("none"), f, bidDoc()) })
	b.Run("encode8", func(b *testing.B) { benchRowEncode(b, bidTable(), f, bidDoc()) })
	b.Run("skip", func(b *testing.B) {
		doc := bidDoc()
		b.SetBytes(int64(len(doc)))
		for b.Loop() {
			if _, err := skipValue(doc, 0, 10); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("structDecode8", func(b *testing.B) { benchDecode[benchBid](b, bidDoc()) })
	b.Run("structDecode3", func(b *testing.B) { benchDecode[benchBid3](b, bidDoc()) })
	b.Run("structEncode8", func(b *testing.B) {
		var v benchBid
		if err := mustJSON[benchBid](b).Decode(bidDoc(), &v); err != nil {
			b.Fatal(err)
		}
		benchEncode(b, v)
	})
}

// BenchmarkRowJSONNested has the bid inside of an event, as the auction benchmark does.
func BenchmarkRowJSONNested(b *testing.B) {
	fields := []row.Field{{Name: "auction", Type: row.BigInt()}, {Name: "bidder", Type: row.BigInt()}, {Name: "price", Type: row.BigInt()}, {Name: "channel", Type: row.String()}, {Name: "url", Type: row.String()}, {Name: "dateTime", Type: row.Timestamp(3)}, {Name: "extra", Type: row.String()}}
	s := table("event_type", row.Int(), "person", row.RowOf(fields...), "auction", row.RowOf(fields...), "bid", row.RowOf(fields...))
	doc := []byte(`{"event_type":2,"person":null,"auction":null,"bid":` + string(bidDoc()) + `}`)
	f := rowFormat(b, JSONRows())
	b.Run("decode", func(b *testing.B) { benchRowDecode(b, s, f, doc) })
	some := s
	some.Columns = slices.Clone(s.Columns)
	some.Columns[1].Fields, some.Columns[2].Fields, some.Columns[3].Fields = []int{5}, []int{5}, []int{0, 2, 5}
	b.Run("decodeFields", func(b *testing.B) { benchRowDecode(b, some, f, doc) })
	b.Run("encode", func(b *testing.B) { benchRowEncode(b, s, f, doc) })
}
