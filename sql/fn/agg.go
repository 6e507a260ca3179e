package fn

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"

	"github.com/millrace-stream/millrace/row"
)

// aggFunc is an aggregate of the table.
func aggFunc(name string, aliases []string, syntax, doc string, resolve func(args []Arg) (Resolved, error), agg Agg) *Func {
	return &Func{Name: name, Aliases: aliases, Kind: Aggregate, Group: "aggregate", Syntax: syntax, Doc: doc, Resolve: resolve, Agg: &agg}
}

// sumType is the type of SUM.
func sumType(args []Arg) *row.Type {
	t := args[0].Type.WithMark(row.NoMark)
	if t.Kind() == row.KindDecimal {
		t = row.Decimal(row.MaxPrecision, t.Scale())
	}
	return t.Nullable(true)
}

// avgType is the type of AVG, STDDEV and VAR.
func avgType(args []Arg) *row.Type {
	t := args[0].Type.WithMark(row.NoMark)
	if t.Kind() == row.KindDecimal {
		t = row.Decimal(row.MaxPrecision, max(6, t.Scale()))
	}
	return t.Nullable(true)
}

func itself(args []Arg) *row.Type { return args[0].Type.WithMark(row.NoMark).Nullable(true) }

// sum192 adds to, or takes from, a sum of 192 bits, in which no sum of DECIMALs overflows.
func sum192(w []uint64, d row.Dec, minus bool) {
	ext := uint64(d.Hi >> 63)
	var c uint64
	if minus {
		w[0], c = bits.Sub64(w[0], d.Lo, 0)
		w[1], c = bits.Sub64(w[1], uint64(d.Hi), c)
		w[2], _ = bits.Sub64(w[2], ext, c)
		return
	}
	w[0], c = bits.Add64(w[0], d.Lo, 0)
	w[1], c = bits.Add64(w[1], uint64(d.Hi), c)
	w[2], _ = bits.Add64(w[2], ext, c)
}

func merge192(w, from []uint64) {
	var c uint64
	w[0], c = bits.Add64(w[0], from[0], 0)
	w[1], c = bits.Add64(w[1], from[1], c)
	w[2], _ = bits.Add64(w[2], from[2], c)
}

// value192 is the sum; ok is false if it has more than 38 digits.
func value192(w []uint64) (row.Dec, bool) {
	d := row.Dec{Lo: w[0], Hi: int64(w[1])}
	return d, int64(w[2]) == d.Hi>>63 && d.Fits(row.MaxPrecision)
}

// acc finishes an accumulator: value makes the Code of what the bound state says.
func acc(words, views int, value func(s *State) Code) *Acc {
	s := new(State)
	return &Acc{Words: words, Views: views, Value: value(s), Bind: func(b State) { *s = b }}
}

func compileCount(_ *Env, args []Code, t *row.Type) (*Acc, error) {
	a := acc(1, 0, func(s *State) Code { return IntCode(t, func(*row.Row) (int64, bool) { return int64(s.W[0]), true }) })
	switch len(args) {
	case 0:
		a.Add = func(s State, _ *row.Row) { s.W[0]++ }
		a.Retract = func(s State, _ *row.Row) { s.W[0]-- }
	default:
		valid := make([]func(*row.Row) bool, len(args))
		for i, c := range args {
			valid[i] = c.Valid()
		}
		all := func(r *row.Row) uint64 {
			for _, v := range valid {
				if !v(r) {
					return 0
				}
			}
			return 1
		}
		if len(valid) == 1 {
			v := valid[0]
			all = func(r *row.Row) uint64 { return uint64(truth(v(r))) }
		}
		a.Add = func(s State, r *row.Row) { s.W[0] += all(r) }
		a.Retract = func(s State, r *row.Row) { s.W[0] -= all(r) }
	}
	a.Merge = func(s, from State) { s.W[0] += from.W[0] }
	return a, nil
}

// compileSum is SUM, and SUM0, which is 0 of no rows. The last word counts values.
func compileSum(zero bool) func(*Env, []Code, *row.Type) (*Acc, error) {
	return func(_ *Env, args []Code, t *row.Type) (*Acc, error) {
		x := args[0]
		switch {
		case t.Kind() == row.KindDecimal:
			get := x.Decs()
			a := acc(4, 0, func(s *State) Code {
				return DecCode(t, func(*row.Row) (row.Dec, bool) {
					d, ok := value192(s.W)
					return d, ok && (zero || s.W[3] != 0)
				})
			})
			add := func(s State, r *row.Row, minus bool, n uint64) {
				if d, ok := get(r); ok {
					sum192(s.W, d, minus)
					s.W[3] += n
				}
			}
			a.Add = func(s State, r *row.Row) { add(s, r, false, 1) }
			a.Retract = func(s State, r *row.Row) { add(s, r, true, math.MaxUint64) }
			a.Merge = func(s, from State) {
				merge192(s.W, from.W)
				s.W[3] += from.W[3]
			}
			return a, nil
		case t.Kind().Approximate():
			a := acc(2, 0, func(s *State) Code {
				return FloatCode(t, func(*row.Row) (float64, bool) { return math.Float64frombits(s.W[0]), zero || s.W[1] != 0 })
			})
			add := func(s State, f float64, n uint64) {
				sum := math.Float64frombits(s.W[0]) + f
				if t.Kind() == row.KindFloat {
					sum = float64(float32(sum))
				}
				s.W[0] = math.Float64bits(sum)
				s.W[1] += n
			}
			a.Add = func(s State, r *row.Row) {
				if f, ok := x.Float(r); ok {
					add(s, f, 1)
				}
			}
			a.Retract = func(s State, r *row.Row) {
				if f, ok := x.Float(r); ok {
					add(s, -f, math.MaxUint64)
				}
			}
			a.Merge = func(s, from State) { add(s, math.Float64frombits(from.W[0]), from.W[1]) }
			return a, nil
		}
		k, get := t.Kind(), x.Int
		a := acc(2, 0, func(s *State) Code {
			return IntCode(t, func(*row.Row) (int64, bool) { return wrap(k, int64(s.W[0])), zero || s.W[1] != 0 })
		})
		a.Add = func(s State, r *row.Row) {
			if v, ok := get(r); ok {
				s.W[0] += uint64(v)
				s.W[1]++
			}
		}
		a.Retract = func(s State, r *row.Row) {
			if v, ok := get(r); ok {
				s.W[0] -= uint64(v)
				s.W[1]--
			}
		}
		a.Merge = func(s, from State) {
			s.W[0] += from.W[0]
			s.W[1] += from.W[1]
		}
		return a, nil
	}
}

func compileAvg(env *Env, args []Code, t *row.Type) (*Acc, error) {
	x := args[0]
	if t.Kind() == row.KindFloat {
		x.Type = row.Double() // the sum is kept in 64 bits
	}
	sumOf := x.Type
	switch k := t.Kind(); {
	case k == row.KindDecimal:
		sumOf = row.Decimal(row.MaxPrecision, x.Type.Scale())
	case k.Integer():
		sumOf = row.BigInt()
	}
	sum, err := compileSum(true)(env, []Code{x}, sumOf)
	if err != nil {
		return nil, err
	}
	var value func(s *State) Code
	switch k := t.Kind(); {
	case k == row.KindDecimal:
		shift := t.Scale() - x.Type.Scale()
		value = func(s *State) Code {
			return DecCode(t, func(*row.Row) (row.Dec, bool) {
				d, ok := value192(s.W)
				if !ok || s.W[3] == 0 {
					return d, false
				}
				return row.DecDiv(d, row.DecInt(int64(s.W[3])), shift, row.MaxPrecision)
			})
		}
	case k.Approximate():
		value = func(s *State) Code {
			return FloatCode(t, func(*row.Row) (float64, bool) {
				return math.Float64frombits(s.W[0]) / float64(int64(s.W[1])), s.W[1] != 0
			})
		}
	default:
		value = func(s *State) Code {
			return IntCode(t, func(*row.Row) (int64, bool) {
				n := int64(s.W[1])
				if n == 0 {
					return 0, false
				}
				return wrap(k, int64(s.W[0])/n), true
			})
		}
	}
	a := acc(sum.Words, 0, value)
	a.Add, a.Retract, a.Merge = sum.Add, sum.Retract, sum.Merge
	return a, nil
}

// compileExtreme is MIN (sign -1) and MAX (sign 1): the value, or its words, and a word that says whether there is one.
func compileExtreme(sign int) func(*Env, []Code, *row.Type) (*Acc, error) {
	return func(_ *Env, args []Code, t *row.Type) (*Acc, error) {
		if get := args[0].Int; get != nil && ClassOf(t) == ClassInt {
			a := acc(2, 0, func(s *State) Code {
				return IntCode(t, func(*row.Row) (int64, bool) { return int64(s.W[0]), s.W[1] != 0 })
			})
			put := func(s State, v int64) {
				if s.W[1] == 0 || sign < 0 && v < int64(s.W[0]) || sign > 0 && v > int64(s.W[0]) {
					s.W[0], s.W[1] = uint64(v), 1
				}
			}
			a.Add = func(s State, r *row.Row) {
				if v, ok := get(r); ok {
					put(s, v)
				}
			}
			a.Merge = func(s, from State) {
				if from.W[1] != 0 {
					put(s, int64(from.W[0]))
				}
			}
			return a, nil
		}
		order, err := orderOf(t)
		if err != nil {
			return nil, fmt.Errorf("values of type %s have no order", t.Text())
		}
		return keepValue(args[0], t, func(old, v Const) bool { return old.Null || order(v, old)*sign > 0 }), nil
	}
}

// keepValue is an accumulator that keeps one value: of two, the new one if replace says so. NULL does not count.
func keepValue(x Code, t *row.Type, replace func(old, v Const) bool) *Acc {
	get := x.Values()
	load := func(s State) Const {
		c := Const{Null: s.W[2] == 0, X: s.W[0], Y: s.W[1]}
		if len(s.S) > 0 {
			c.B = s.S[0]
		}
		return c
	}
	views := 0
	if ClassOf(t) == ClassBytes {
		views = 1
	}
	a := acc(3, views, func(s *State) Code { return CodeOf(t, func(*row.Row) Const { return load(*s) }) })
	put := func(s State, v Const) {
		if v.Null || !replace(load(s), v) {
			return
		}
		s.W[0], s.W[1], s.W[2] = v.X, v.Y, 1
		if views > 0 {
			s.S[0] = append(make([]byte, 0, len(v.B)), v.B...)
		}
	}
	a.Add = func(s State, r *row.Row) { put(s, get(r)) }
	a.Merge = func(s, from State) { put(s, load(from)) }
	return a
}

// compileVariance is VAR_POP, VAR_SAMP and their roots, by the formula of Flink: (sum(x*x) - sum(x)*sum(x)/n) / n or n-1,
// for integers with integer divisions.
func compileVariance(sample, root bool) func(*Env, []Code, *row.Type) (*Acc, error) {
	return func(_ *Env, args []Code, t *row.Type) (*Acc, error) {
		x := args[0]
		divisor := func(n uint64) (int64, bool) {
			if sample {
				n--
			}
			return int64(n), int64(n) > 0
		}
		switch k := t.Kind(); {
		case k == row.KindDecimal:
			return decimalVariance(x, t, divisor, root), nil
		case k.Approximate():
			a := acc(3, 0, func(s *State) Code {
				return FloatCode(t, func(*row.Row) (float64, bool) {
					n, ok := divisor(s.W[2])
					sq, sum := math.Float64frombits(s.W[0]), math.Float64frombits(s.W[1])
					v := (sq - sum*sum/float64(int64(s.W[2]))) / float64(n)
					if root {
						v = math.Pow(v, 0.5)
					}
					return v, ok
				})
			})
			add := func(s State, sq, sum float64, n uint64) {
				s.W[0] = math.Float64bits(math.Float64frombits(s.W[0]) + sq)
				s.W[1] = math.Float64bits(math.Float64frombits(s.W[1]) + sum)
				s.W[2] += n
			}
			a.Add = func(s State, r *row.Row) {
				if f, ok := x.Float(r); ok {
					add(s, f*f, f, 1)
				}
			}
			a.Retract = func(s State, r *row.Row) {
				if f, ok := x.Float(r); ok {
					add(s, -f*f, -f, math.MaxUint64)
				}
			}
			a.Merge = func(s, from State) {
				add(s, math.Float64frombits(from.W[0]), math.Float64frombits(from.W[1]), from.W[2])
			}
			return a, nil
		default:
			a := acc(3, 0, func(s *State) Code {
				return IntCode(t, func(*row.Row) (int64, bool) {
					n, ok := divisor(s.W[2])
					if !ok {
						return 0, false
					}
					sq, sum := int64(s.W[0]), int64(s.W[1])
					v := (sq - sum*sum/int64(s.W[2])) / n
					if root {
						v = javaLong(math.Pow(float64(v), 0.5))
					}
					return wrap(k, v), true
				})
			})
			add := func(s State, r *row.Row, sign int64) {
				if v, ok := x.Int(r); ok {
					s.W[0] += uint64(sign * v * v)
					s.W[1] += uint64(sign * v)
					s.W[2] += uint64(sign)
				}
			}
			a.Add = func(s State, r *row.Row) { add(s, r, 1) }
			a.Retract = func(s State, r *row.Row) { add(s, r, -1) }
			a.Merge = func(s, from State) {
				for i := range 3 {
					s.W[i] += from.W[i]
				}
			}
			return a, nil
		}
	}
}

func decimalVariance(x Code, t *row.Type, divisor func(uint64) (int64, bool), root bool) *Acc {
	scale, get := x.Type.Scale(), x.Decs()
	// The squares are kept at scale s2, which leaves digits for their sum.
	s2 := min(2*scale, 18)
	a := acc(7, 0, func(s *State) Code {
		return DecCode(t, func(*row.Row) (row.Dec, bool) {
			n, ok := divisor(s.W[6])
			sq, ok1 := value192(s.W)
			sum, ok2 := value192(s.W[3:])
			if !ok || !ok1 || !ok2 {
				return row.Dec{}, false
			}
			mean, ok := row.DecDiv(sum, row.DecInt(int64(s.W[6])), max(0, s2-scale), row.MaxPrecision)
			if !ok {
				return row.Dec{}, false
			}
			part, ok := row.DecMul(sum, mean, scale+scale+max(0, s2-scale)-s2, row.MaxPrecision)
			if !ok {
				return row.Dec{}, false
			}
			v, ok := row.DecDiv(sq.Sub(part), row.DecInt(n), t.Scale()-s2, row.MaxPrecision)
			if ok && root {
				return row.DecOfDouble(math.Pow(v.ToDouble(t.Scale()), 0.5), t.Precision(), t.Scale())
			}
			return v, ok
		})
	})
	add := func(s State, r *row.Row, minus bool, n uint64) {
		d, ok := get(r)
		if !ok {
			return
		}
		if sq, ok := row.DecMul(d, d, 2*scale-s2, row.MaxPrecision); ok {
			sum192(s.W, sq, minus)
		}
		sum192(s.W[3:], d, minus)
		s.W[6] += n
	}
	a.Add = func(s State, r *row.Row) { add(s, r, false, 1) }
	a.Retract = func(s State, r *row.Row) { add(s, r, true, math.MaxUint64) }
	a.Merge = func(s, from State) {
		merge192(s.W, from.W)
		merge192(s.W[3:], from.W[3:])
		s.W[6] += from.W[6]
	}
	return a
}

func compileListagg(_ *Env, args []Code, t *row.Type) (*Acc, error) {
	sep := []byte(",")
	if len(args) > 1 {
		s, ok := constText(args[1])
		if !ok {
			return nil, errors.New("the separator of LISTAGG must be a constant text")
		}
		sep = []byte(s)
	}
	get := args[0].Bytes
	a := acc(1, 1, func(s *State) Code {
		return BytesCode(t, func(*row.Row) ([]byte, bool) { return s.S[0], s.W[0] != 0 })
	})
	put := func(s State, b []byte) {
		if s.W[0] == 0 {
			s.W[0], s.S[0] = 1, append(make([]byte, 0, len(b)), b...)
			return
		}
		old := s.S[0]
		text := make([]byte, 0, len(old)+len(sep)+len(b))
		s.S[0] = append(append(append(text, old...), sep...), b...)
	}
	a.Add = func(s State, r *row.Row) {
		if b, ok := get(r); ok {
			put(s, b)
		}
	}
	a.Merge = func(s, from State) {
		if from.W[0] != 0 {
			put(s, from.S[0])
		}
	}
	return a, nil
}

func compileArrayAgg(_ *Env, args []Code, t *row.Type) (*Acc, error) {
	get := args[0].Values()
	b := row.NewArrayBuilder(t)
	a := acc(0, 1, func(s *State) Code {
		return BytesCode(t, func(*row.Row) ([]byte, bool) { return s.S[0], s.S[0] != nil })
	})
	copyOld := func(s State) {
		b.Reset()
		if s.S[0] != nil {
			v := row.ViewArray(t, s.S[0])
			for i := range v.Len() {
				b.AddFrom(v, i)
			}
		}
	}
	a.Add = func(s State, r *row.Row) {
		copyOld(s)
		addValue(b, t.Elem(), get(r))
		s.S[0] = b.Append(nil)
	}
	a.Merge = func(s, from State) {
		if from.S[0] == nil {
			return
		}
		copyOld(s)
		v := row.ViewArray(t, from.S[0])
		for i := range v.Len() {
			b.AddFrom(v, i)
		}
		s.S[0] = b.Append(nil)
	}
	return a, nil
}

func compileCollect(_ *Env, args []Code, t *row.Type) (*Acc, error) {
	get := args[0].Values()
	build := row.NewMapBuilder(t)
	empty := build.Append(nil)
	a := acc(0, 1, func(s *State) Code {
		return BytesCode(t, func(*row.Row) ([]byte, bool) {
			if s.S[0] == nil {
				return empty, true
			}
			return s.S[0], true
		})
	})
	add := func(s State, key Const, n int64) {
		if key.Null {
			return
		}
		build.Reset()
		found := false
		if s.S[0] != nil {
			v := row.ViewMap(t, s.S[0])
			for i := range v.Len() {
				count := int64(v.Values().Word(i))
				if !found && equalValues(t.Elem(), element(v.Keys(), i), key, true) {
					found = true
					count += n
				}
				if count != 0 {
					build.Keys.AddFrom(v.Keys(), i)
					build.Values.AddWord(uint64(count))
				}
			}
		}
		if !found {
			addValue(&build.Keys, t.Elem(), key)
			build.Values.AddWord(uint64(n))
		}
		s.S[0] = build.Append(nil)
	}
	a.Add = func(s State, r *row.Row) { add(s, get(r), 1) }
	a.Retract = func(s State, r *row.Row) { add(s, get(r), -1) }
	a.Merge = func(s, from State) {
		if from.S[0] == nil {
			return
		}
		v := row.ViewMap(t, from.S[0])
		for i := range v.Len() {
			add(s, element(v.Keys(), i), int64(v.Values().Word(i)))
		}
	}
	return a, nil
}

// sketchBits is the logarithm of the number of registers of APPROX_COUNT_DISTINCT: 2^14 give an error of 0.8 %.
const sketchBits = 14

// compileApprox is HyperLogLog over a hash of the key form of the value, exact as long as few registers are taken. The
// state is sparse first: pairs of register (2 bytes) and rank, and becomes one byte a register when it is larger.
func compileApprox(_ *Env, args []Code, t *row.Type) (*Acc, error) {
	get, typ := args[0].Values(), args[0].Type
	a := acc(0, 1, func(s *State) Code {
		return IntCode(t, func(*row.Row) (int64, bool) { return sketchCount(s.S[0]), true })
	})
	var key []byte
	a.Add = func(s State, r *row.Row) {
		v := get(r)
		if v.Null {
			return
		}
		key = row.AppendKeyValue(key[:0], typ, v.X, v.Y, v.B)
		h := hash64(key)
		s.S[0] = sketchPut(s.S[0], int(h>>(64-sketchBits)), byte(bits.LeadingZeros64(h<<sketchBits|1<<(sketchBits-1))+1))
	}
	a.Merge = func(s, from State) {
		b := from.S[0]
		if len(b) == 1<<sketchBits {
			for i, rank := range b {
				if rank > 0 {
					s.S[0] = sketchPut(s.S[0], i, rank)
				}
			}
			return
		}
		for ; len(b) > 0; b = b[3:] {
			s.S[0] = sketchPut(s.S[0], int(binary.BigEndian.Uint16(b)), b[2])
		}
	}
	return a, nil
}

// hash64 is FNV-1a with a last mix, so that all bits depend on all bytes.
func hash64(b []byte) uint64 {
	h := uint64(14695981039346656037)
	for _, c := range b {
		h = (h ^ uint64(c)) * 1099511628211
	}
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// sketchPut returns the sketch with the register at rank at least; the old slice stays as it is.
func sketchPut(b []byte, register int, rank byte) []byte {
	if len(b) == 1<<sketchBits {
		if b[register] >= rank {
			return b
		}
		b = bytes.Clone(b)
		b[register] = rank
		return b
	}
	lo, hi := 0, len(b)/3
	for lo < hi {
		mid := (lo + hi) / 2
		if int(binary.BigEndian.Uint16(b[3*mid:])) < register {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	at := 3 * lo
	if at < len(b) && int(binary.BigEndian.Uint16(b[at:])) == register {
		if b[at+2] >= rank {
			return b
		}
		b = bytes.Clone(b)
		b[at+2] = rank
		return b
	}
	if len(b)+3 >= 1<<sketchBits/4 {
		dense := make([]byte, 1<<sketchBits)
		for ; len(b) > 0; b = b[3:] {
			dense[binary.BigEndian.Uint16(b)] = b[2]
		}
		dense[register] = rank
		return dense
	}
	out := append(make([]byte, 0, len(b)+3), b[:at]...)
	out = append(binary.BigEndian.AppendUint16(out, uint16(register)), rank)
	return append(out, b[at:]...)
}

func sketchCount(b []byte) int64 {
	const m = 1 << sketchBits
	sum, zero := 0.0, m
	each := func(rank byte) {
		sum += math.Ldexp(1, -int(rank))
		zero--
	}
	if len(b) == m {
		for _, rank := range b {
			if rank > 0 {
				each(rank)
			}
		}
	} else {
		for ; len(b) > 0; b = b[3:] {
			each(b[2])
		}
	}
	estimate := 0.7213 / (1 + 1.079/m) * m * m / (sum + float64(zero))
	if estimate <= 2.5*m && zero > 0 {
		estimate = m * math.Log(float64(m)/float64(zero))
	}
	return int64(math.Round(estimate))
}

// groupingFunc is an aggregate that depends on the grouping set alone: the planner puts a constant in its place.
func groupingFunc(name, syntax, doc string, resolve func(args []Arg) (Resolved, error)) *Func {
	return aggFunc(name, nil, syntax, doc, resolve, Agg{Compile: func(*Env, []Code, *row.Type) (*Acc, error) {
		return nil, fmt.Errorf("%s stands in a query with GROUP BY only", name)
	}})
}

// windowFunc is a function that is only there with OVER, which the operator computes itself.
func windowFunc(name, syntax, doc string, resolve func(args []Arg) (Resolved, error)) *Func {
	return &Func{Name: name, Kind: WindowFn, Group: "window", Syntax: syntax + " OVER (..)", Doc: doc, Resolve: resolve, Agg: &Agg{OverOnly: true}}
}

func shiftSigs() func(args []Arg) (Resolved, error) {
	return func(args []Arg) (Resolved, error) {
		if len(args) < 1 || len(args) > 3 || len(args) > 1 && wantInteger.fit(args[1]) == nil {
			return Resolved{}, mismatch(args, []sig{of(nil, wantAny), of(nil, wantAny, wantInteger), of(nil, wantAny, wantInteger, wantAny)})
		}
		t := args[0].Type.WithMark(row.NoMark)
		types := []*row.Type{args[0].Type}
		null := true
		if len(args) > 1 {
			types = append(types, wantInteger.fit(args[1]))
		}
		if len(args) > 2 {
			l := LeastRestrictive(t, args[2].Type)
			if l == nil {
				return Resolved{}, mismatchOne([]Arg{args[0], args[2]})
			}
			t, null = l, l.IsNullable()
			types = []*row.Type{like(l, args[0]), types[1], like(l, args[2])}
		}
		return Resolved{types, t.Nullable(null)}, nil
	}
}

// wantOrdered takes types that have an order.
var wantOrdered = want{"value with an order", func(a Arg) *row.Type {
	if a.Type.Kind().Nested() || isNull(a) {
		return nil
	}
	return a.Type
}}

func aggregateFuncs() []*Func {
	long := notNull(row.BigInt())
	return []*Func{
		aggFunc("COUNT", nil, "COUNT(*), COUNT([DISTINCT] value)", "The number of rows, or of rows in which the value is not NULL.",
			sigs(of(long), of(long, wantAny).many()), Agg{Compile: compileCount}),
		aggFunc("SUM", nil, "SUM([DISTINCT] number)", "The sum, in the type of the number (integers wrap around); a DECIMAL has 38 digits. NULL without a value.",
			sigs(of(sumType, wantNumber)), Agg{Compile: compileSum(false)}),
		aggFunc("SUM0", []string{"$SUM0"}, "SUM0(number)", "SUM, but 0 without a value.",
			sigs(of(func(args []Arg) *row.Type { return sumType(args).NotNull() }, wantNumber)), Agg{Compile: compileSum(true)}),
		aggFunc("AVG", nil, "AVG([DISTINCT] number)", "The mean in the type of the number, towards zero for integers.", sigs(of(avgType, wantNumber)), Agg{Compile: compileAvg}),
		aggFunc("MIN", nil, "MIN(value)", "The least value that is not NULL.", sigs(of(itself, wantOrdered)), Agg{Compile: compileExtreme(-1), Store: Ordered}),
		aggFunc("MAX", nil, "MAX(value)", "The greatest value that is not NULL.", sigs(of(itself, wantOrdered)), Agg{Compile: compileExtreme(1), Store: Ordered, Last: true}),
		aggFunc("STDDEV_POP", nil, "STDDEV_POP(number)", "The standard deviation of the values, in the type of the number.", sigs(of(avgType, wantNumber)), Agg{Compile: compileVariance(false, true)}),
		aggFunc("STDDEV_SAMP", []string{"STDDEV"}, "STDDEV_SAMP(number)", "The standard deviation estimated from a sample; NULL of one value.", sigs(of(avgType, wantNumber)), Agg{Compile: compileVariance(true, true)}),
		aggFunc("VAR_POP", nil, "VAR_POP(number)", "The variance of the values, in the type of the number.", sigs(of(avgType, wantNumber)), Agg{Compile: compileVariance(false, false)}),
		aggFunc("VAR_SAMP", []string{"VARIANCE"}, "VAR_SAMP(number)", "The variance estimated from a sample; NULL of one value.", sigs(of(avgType, wantNumber)), Agg{Compile: compileVariance(true, false)}),
		aggFunc("FIRST_VALUE", nil, "FIRST_VALUE(value)", "The first value that is not NULL, in the order of arrival or of OVER.", sigs(of(itself, wantAny)),
			Agg{Store: Replay, Arrival: true, Compile: func(_ *Env, args []Code, t *row.Type) (*Acc, error) {
				return keepValue(args[0], t, func(old, _ Const) bool { return old.Null }), nil
			}}),
		aggFunc("LAST_VALUE", nil, "LAST_VALUE(value)", "The last value that is not NULL, in the order of arrival or of OVER.", sigs(of(itself, wantAny)),
			Agg{Store: Replay, Arrival: true, Compile: func(_ *Env, args []Code, t *row.Type) (*Acc, error) {
				return keepValue(args[0], t, func(Const, Const) bool { return true }), nil
			}}),
		aggFunc("LISTAGG", nil, "LISTAGG([DISTINCT] string [, separator])", "The texts that are not NULL with the separator (a comma) between them.",
			sigs(of(nullable(row.String()), wantText), of(nullable(row.String()), wantText, wantText)), Agg{Store: Replay, Arrival: true, Compile: compileListagg}),
		aggFunc("COLLECT", nil, "COLLECT([DISTINCT] value)", "A multiset of the values that are not NULL.",
			sigs(of(func(args []Arg) *row.Type { return row.Multiset(args[0].Type.WithMark(row.NoMark)).NotNull() }, wantAny)), Agg{Compile: compileCollect}),
		aggFunc("ARRAY_AGG", nil, "ARRAY_AGG([DISTINCT] value)", "An array of all values, NULL too, in the order of arrival.",
			sigs(of(func(args []Arg) *row.Type { return row.Array(args[0].Type.WithMark(row.NoMark)) }, wantAny)), Agg{Store: Replay, Arrival: true, Compile: compileArrayAgg}),
		aggFunc("APPROX_COUNT_DISTINCT", nil, "APPROX_COUNT_DISTINCT(value)", "About how many different values there are, with an error of 1 %.", sigs(of(long, wantAny)), Agg{Store: Replay, Compile: compileApprox}),
		groupingFunc("GROUPING", "GROUPING(column)", "1 if the column is not in the grouping set of the row, else 0.", sigs(of(long, wantAny))),
		groupingFunc("GROUPING_ID", "GROUPING_ID(column, ..)", "A number with a bit for each column, the first one the highest: 1 if the column is not in the grouping set.", sigs(of(long, wantAny).many())),
		groupingFunc("GROUP_ID", "GROUP_ID()", "The number of the grouping set among equal ones.", sigs(of(long))),
		windowFunc("ROW_NUMBER", "ROW_NUMBER()", "The number of the row in its partition, from 1.", sigs(of(long))),
		windowFunc("RANK", "RANK()", "One more than the number of rows that come before; equal rows have one rank.", sigs(of(long))),
		windowFunc("DENSE_RANK", "DENSE_RANK()", "One more than the number of different values that come before.", sigs(of(long))),
		windowFunc("PERCENT_RANK", "PERCENT_RANK()", "The rank as a part of 1. Refused over a stream, as in Flink.", sigs(of(notNull(row.Double())))),
		windowFunc("CUME_DIST", "CUME_DIST()", "The part of the rows that come before or are equal. Refused over a stream, as in Flink.", sigs(of(notNull(row.Double())))),
		windowFunc("NTILE", "NTILE(n)", "The number of the group, 1 to n, when the partition is divided into n groups. Refused over a stream, as in Flink.", sigs(of(long, wantInteger))),
		windowFunc("LAG", "LAG(value [, offset [, default]])", "The value offset (1) rows before, the default or NULL if there is no such row.", shiftSigs()),
		windowFunc("LEAD", "LEAD(value [, offset [, default]])", "The value offset (1) rows behind, the default or NULL if there is no such row. Refused over a stream, as in Flink.", shiftSigs()),
	}
}
