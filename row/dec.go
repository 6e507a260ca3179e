package row

import (
	"math/bits"
)

// Dec is a signed 128-bit integer, the unscaled number of a DECIMAL: 1.50 of scale 2 is 150. The scale is part of the
// type and not kept here.
type Dec struct {
	Lo uint64
	Hi int64
}

// DecInt is v.
func DecInt(v int64) Dec { return Dec{uint64(v), v >> 63} }

// Int64 is d as an int64; ok is false if it does not fit.
func (d Dec) Int64() (v int64, ok bool) { return int64(d.Lo), d.Hi == int64(d.Lo)>>63 }

// Sign is -1, 0 or 1.
func (d Dec) Sign() int {
	switch {
	case d.Hi < 0:
		return -1
	case d.Hi == 0 && d.Lo == 0:
		return 0
	}
	return 1
}

// Cmp compares two numbers of one scale: -1, 0 or 1.
func (d Dec) Cmp(e Dec) int {
	switch {
	case d.Hi != e.Hi:
		if d.Hi < e.Hi {
			return -1
		}
		return 1
	case d.Lo != e.Lo:
		if d.Lo < e.Lo {
			return -1
		}
		return 1
	}
	return 0
}

// Neg is -d. The least number has no negative in 128 bits; it is no DECIMAL.
func (d Dec) Neg() Dec {
	lo, borrow := bits.Sub64(0, d.Lo, 0)
	hi, _ := bits.Sub64(0, uint64(d.Hi), borrow)
	return Dec{lo, int64(hi)}
}

// Abs is d without sign.
func (d Dec) Abs() Dec {
	if d.Hi < 0 {
		return d.Neg()
	}
	return d
}

// Add is d + e of one scale, modulo 2^128: two DECIMALs never overflow that, so [Dec.Fits] may be asked after it.
func (d Dec) Add(e Dec) Dec {
	lo, carry := bits.Add64(d.Lo, e.Lo, 0)
	hi, _ := bits.Add64(uint64(d.Hi), uint64(e.Hi), carry)
	return Dec{lo, int64(hi)}
}

// Sub is d - e, see Add.
func (d Dec) Sub(e Dec) Dec {
	lo, borrow := bits.Sub64(d.Lo, e.Lo, 0)
	hi, _ := bits.Sub64(uint64(d.Hi), uint64(e.Hi), borrow)
	return Dec{lo, int64(hi)}
}

// MulInt64 is a * b, which always fits.
func MulInt64(a, b int64) Dec {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	// The unsigned product of two's complements is too large by the other factor for each negative one.
	return Dec{lo, int64(hi) - (a >> 63 & b) - (b >> 63 & a)}
}

// Fits says whether d has at most that many digits (0 to 38).
func (d Dec) Fits(digits int) bool {
	a := d.Abs()
	p := &pow10[digits]
	return a.Hi >= 0 && (uint64(a.Hi) < p.hi || uint64(a.Hi) == p.hi && a.Lo < p.lo)
}

// u128 is an unsigned 128-bit integer.
type u128 struct{ hi, lo uint64 }

// pow10 has 10^0 to 10^38.
var pow10 = func() (p [39]u128) {
	p[0].lo = 1
	for i := 1; i < len(p); i++ {
		hi, lo := bits.Mul64(p[i-1].lo, 10)
		p[i] = u128{p[i-1].hi*10 + hi, lo}
	}
	return p
}()

// DecAdd is a + b of the scales as and bs, rounded half up to scale s. ok is false if the sum has more than that many
// digits: it is NULL then.
func DecAdd(a Dec, as int, b Dec, bs int, digits, s int) (sum Dec, ok bool) {
	if as == bs && as == s {
		sum = a.Add(b)
		return sum, sum.Fits(digits)
	}
	m := max(as, bs)
	x, xn, ok1 := scaledUp(a, m-as)
	y, yn, ok2 := scaledUp(b, m-bs)
	if !ok1 || !ok2 {
		return Dec{}, false
	}
	if xn == yn {
		x = x.add(y)
	} else if x.less(y) {
		x, xn = y.sub(x), yn
	} else {
		x = x.sub(y)
	}
	return x.round(xn, m-s, digits)
}

// DecSub is a - b, see DecAdd.
func DecSub(a Dec, as int, b Dec, bs int, digits, s int) (diff Dec, ok bool) {
	return DecAdd(a, as, b.Neg(), bs, digits, s)
}

// DecMul is a * b without its last drop digits (drop = scale of a + scale of b - scale of the result), rounded half up.
// ok is false if it has more than that many digits: it is NULL then.
func DecMul(a, b Dec, drop, digits int) (product Dec, ok bool) {
	x, small1 := a.Int64()
	y, small2 := b.Int64()
	if small1 && small2 && drop == 0 {
		product = MulInt64(x, y)
		return product, product.Fits(digits)
	}
	return mulWide(a, b, drop, digits)
}

func mulWide(a, b Dec, drop, digits int) (Dec, bool) {
	p := mulU128(a.magnitude(), b.magnitude())
	return p.round((a.Hi^b.Hi) < 0, drop, digits)
}

// DecDiv is a * 10^shift / b (shift = scale of the result + scale of b - scale of a), rounded half up. ok is false if it
// has more than that many digits, or b is 0.
func DecDiv(a, b Dec, shift, digits int) (quotient Dec, ok bool) {
	d := b.magnitude()
	if d == (u128{}) {
		return Dec{}, false
	}
	negative := (a.Hi ^ b.Hi) < 0
	if shift < 0 {
		q, _ := u256{a.magnitude().lo, a.magnitude().hi}.divmod(d)
		return q.round(negative, -shift, digits)
	}
	n, _, ok := scaledUp(a, shift)
	if !ok {
		return Dec{}, false // 2^256 / 10^38 has more than 38 digits
	}
	q, r := n.divmod(d)
	// Half up: r >= d - r, without overflow.
	if rest := d.sub(r); !r.less(rest) {
		q = q.add(u256{1})
	}
	return q.signed(negative, digits)
}

// DecMod is the rest of a / b with the sign of a, for scales as and bs, rounded half up to scale s. ok is false if it has
// more than that many digits, or b is 0.
func DecMod(a Dec, as int, b Dec, bs int, digits, s int) (rest Dec, ok bool) {
	if b == (Dec{}) {
		return Dec{}, false
	}
	m := max(as, bs)
	x, negative, _ := scaledUp(a, m-as)
	y, _, ok := scaledUp(b, m-bs)
	if ok && y[2]|y[3] == 0 {
		_, r := x.divmod(u128{y[1], y[0]})
		x = u256{r.lo, r.hi}
	} // else b is greater than any a of its own scale
	return x.round(negative, m-s, digits)
}

// Rescale is d of scale from at scale to, rounded half up (away from zero). ok is false if it has more than that many
// digits.
func (d Dec) Rescale(from, to, digits int) (_ Dec, ok bool) {
	if from == to {
		return d, d.Fits(digits)
	}
	if v, small := d.Int64(); small && to > from && to-from <= 18 {
		d = MulInt64(v, int64(pow10[to-from].lo))
		return d, d.Fits(digits)
	}
	x, negative, ok := scaledUp(d, max(0, to-from))
	if !ok {
		return Dec{}, false
	}
	return x.round(negative, max(0, from-to), digits)
}

// Trunc is d of scale from at scale to, towards zero; to <= from.
func (d Dec) Trunc(from, to int) Dec {
	q, _ := u256{d.magnitude().lo, d.magnitude().hi}.divmod(pow10[from-to])
	q0, _ := q.signed(d.Hi < 0, MaxPrecision)
	return q0
}

// Floor is d of scale from at scale to, towards minus infinity; to <= from.
func (d Dec) Floor(from, to int) Dec {
	t := d.Trunc(from, to)
	if d.Hi < 0 && t.Mul10(from-to) != d {
		t = t.Sub(DecInt(1))
	}
	return t
}

// Ceil is d of scale from at scale to, towards infinity; to <= from.
func (d Dec) Ceil(from, to int) Dec { return d.Neg().Floor(from, to).Neg() }

// Mul10 is d * 10^n modulo 2^128.
func (d Dec) Mul10(n int) Dec {
	p := pow10[n]
	hi, lo := bits.Mul64(d.Lo, p.lo)
	return Dec{lo, int64(hi + d.Lo*p.hi + uint64(d.Hi)*p.lo)}
}

// DecCmp compares numbers of the scales as and bs: -1, 0 or 1.
func DecCmp(a Dec, as int, b Dec, bs int) int {
	if as == bs {
		return a.Cmp(b)
	}
	if s, t := a.Sign(), b.Sign(); s != t {
		if s < t {
			return -1
		}
		return 1
	}
	m := max(as, bs)
	x, negative, ok1 := scaledUp(a, m-as)
	y, _, ok2 := scaledUp(b, m-bs)
	c := 0
	switch {
	case !ok1: // only one side is scaled: it is greater than anything else
		c = 1
	case !ok2:
		c = -1
	case x.less(y):
		c = -1
	case y.less(x):
		c = 1
	}
	if negative {
		return -c
	}
	return c
}

func (d Dec) magnitude() u128 {
	a := d.Abs()
	return u128{uint64(a.Hi), a.Lo}
}

func (a u128) less(b u128) bool { return a.hi < b.hi || a.hi == b.hi && a.lo < b.lo }

func (a u128) sub(b u128) u128 {
	lo, borrow := bits.Sub64(a.lo, b.lo, 0)
	hi, _ := bits.Sub64(a.hi, b.hi, borrow)
	return u128{hi, lo}
}

// u256 is an unsigned 256-bit integer, the low word first.
type u256 [4]uint64

func (x u256) less(b u256) bool {
	for i := 3; i >= 0; i-- {
		if x[i] != b[i] {
			return x[i] < b[i]
		}
	}
	return false
}

func (x u256) add(b u256) u256 {
	var c uint64
	for i := range x {
		x[i], c = bits.Add64(x[i], b[i], c)
	}
	return x
}

func (x u256) sub(b u256) u256 {
	var c uint64
	for i := range x {
		x[i], c = bits.Sub64(x[i], b[i], c)
	}
	return x
}

func mulU128(a, b u128) (p u256) {
	var c uint64
	p[1], p[0] = bits.Mul64(a.lo, b.lo)
	h1, l1 := bits.Mul64(a.hi, b.lo)
	h2, l2 := bits.Mul64(a.lo, b.hi)
	h3, l3 := bits.Mul64(a.hi, b.hi)
	p[1], c = bits.Add64(p[1], l1, 0)
	p[2], c = bits.Add64(h1, l3, c)
	p[3] = h3 + c
	p[1], c = bits.Add64(p[1], l2, 0)
	p[2], c = bits.Add64(p[2], h2, c)
	p[3] += c
	return p
}

// scaledUp is |d| * 10^n; ok is false if that needs more than 256 bits.
func scaledUp(d Dec, n int) (x u256, negative, ok bool) {
	m := d.magnitude()
	if n == 0 {
		return u256{m.lo, m.hi}, d.Hi < 0, true
	}
	x = mulU128(m, pow10[min(n, 38)])
	for n -= 38; n > 0; n -= 38 {
		p := pow10[min(n, 38)]
		lo, hi := mulU128(u128{x[1], x[0]}, p), mulU128(u128{x[3], x[2]}, p)
		var c uint64
		x[0], x[1] = lo[0], lo[1]
		x[2], c = bits.Add64(lo[2], hi[0], 0)
		x[3], c = bits.Add64(lo[3], hi[1], c)
		if c|hi[2]|hi[3] != 0 {
			return u256{}, false, false
		}
	}
	return x, d.Hi < 0, true
}

// round is x / 10^drop, half up, as a signed number of at most that many digits.
func (x u256) round(negative bool, drop, digits int) (Dec, bool) {
	if drop > 0 {
		// Digits above the last 38 to drop can go first: half of a power of ten is a whole number then.
		for ; drop > 38; drop -= 37 {
			x, _ = x.divmod(pow10[37])
		}
		var r u128
		x, r = x.divmod(pow10[drop])
		if rest := pow10[drop].sub(r); !r.less(rest) {
			x = x.add(u256{1})
		}
	} else if drop < 0 {
		if x[2]|x[3] != 0 || x[1]>>63 != 0 {
			return Dec{}, false
		}
		return Dec{x[0], int64(x[1])}.signed(negative).Rescale(0, -drop, digits)
	}
	return x.signed(negative, digits)
}

func (d Dec) signed(negative bool) Dec {
	if negative {
		return d.Neg()
	}
	return d
}

func (x u256) signed(negative bool, digits int) (Dec, bool) {
	if x[2]|x[3] != 0 || !(u128{x[1], x[0]}).less(pow10[digits]) {
		return Dec{}, false
	}
	return Dec{x[0], int64(x[1])}.signed(negative), true
}

// divmod divides by d, which is not 0.
func (x u256) divmod(d u128) (q u256, r u128) {
	if d.hi == 0 {
		var rest uint64
		for i := 3; i >= 0; i-- {
			if rest == 0 && x[i] < d.lo {
				rest = x[i]
				continue
			}
			q[i], rest = bits.Div64(rest, x[i], d.lo)
		}
		return q, u128{0, rest}
	}
	// Long division by two words (Knuth's algorithm D): the divisor is shifted so that its top bit is set.
	s := uint(bits.LeadingZeros64(d.hi))
	d1, d0 := d.hi, d.lo
	var n [5]uint64
	if s > 0 {
		d1, d0 = d.hi<<s|d.lo>>(64-s), d.lo<<s
		n = [5]uint64{x[0] << s, x[1]<<s | x[0]>>(64-s), x[2]<<s | x[1]>>(64-s), x[3]<<s | x[2]>>(64-s), x[3] >> (64 - s)}
	} else {
		copy(n[:], x[:])
	}
	for j := 2; j >= 0; j-- {
		if n[j+2] == 0 && (n[j+1] < d1 || n[j+1] == d1 && n[j] < d0) {
			continue
		}
		var qhat, rhat, c uint64
		if n[j+2] >= d1 {
			qhat = ^uint64(0)
			rhat, c = bits.Add64(n[j+1], d1, 0)
		} else {
			qhat, rhat = bits.Div64(n[j+2], n[j+1], d1)
		}
		for c == 0 {
			h, l := bits.Mul64(qhat, d0)
			if h < rhat || h == rhat && l <= n[j] {
				break
			}
			qhat--
			rhat, c = bits.Add64(rhat, d1, 0)
		}
		h, l := bits.Mul64(qhat, d0)
		h1, l1 := bits.Mul64(qhat, d1)
		var b uint64
		h, c = bits.Add64(h, l1, 0)
		h1 += c
		n[j], b = bits.Sub64(n[j], l, 0)
		n[j+1], b = bits.Sub64(n[j+1], h, b)
		n[j+2], _ = bits.Sub64(n[j+2], h1, b)
		q[j] = qhat
	}
	if s > 0 {
		return q, u128{n[1] >> s, n[0]>>s | n[1]<<(64-s)}
	}
	return q, u128{n[1], n[0]}
}
