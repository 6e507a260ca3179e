package row

import (
	"math/big"
	"math/rand/v2"
	"testing"
)

func (d Dec) big() *big.Int {
	x := new(big.Int).Lsh(big.NewInt(d.Hi), 64)
	return x.Add(x, new(big.Int).SetUint64(d.Lo))
}

func decOf(x *big.Int) Dec {
	m := new(big.Int).And(x, new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 128), big.NewInt(1)))
	return Dec{m.Uint64(), int64(new(big.Int).Rsh(m, 64).Uint64())}
}

func ten(n int) *big.Int { return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil) }

// roundBig is n/d half up, as Java's BigDecimal rounds.
func roundBig(n, d *big.Int) *big.Int {
	q, r := new(big.Int).QuoRem(n, d, new(big.Int))
	if r.Lsh(r, 1).CmpAbs(d) >= 0 {
		if n.Sign()*d.Sign() < 0 {
			return q.Sub(q, big.NewInt(1))
		}
		return q.Add(q, big.NewInt(1))
	}
	return q
}

// someDec is a number of at most that many digits: often short, often near a power of ten.
func someDec(r *rand.Rand, digits int) Dec {
	n := r.IntN(digits + 1)
	x := new(big.Int)
	switch r.IntN(4) {
	case 0:
		x.Sub(ten(n), big.NewInt(int64(r.IntN(3))))
	case 1:
		x.Add(ten(n), big.NewInt(int64(r.IntN(3))))
	case 2:
		x.Quo(ten(n), big.NewInt(2))
		x.Add(x, big.NewInt(int64(r.IntN(3)-1)))
	default:
		for range 4 {
			x.Lsh(x, 64)
			x.Add(x, new(big.Int).SetUint64(r.Uint64()))
		}
		x.Mod(x, ten(n))
	}
	if x.CmpAbs(ten(digits)) >= 0 {
		x.Sub(ten(digits), big.NewInt(1))
	}
	if r.IntN(2) == 0 {
		x.Neg(x)
	}
	return decOf(x)
}

func checkDec(t *testing.T, op string, a Dec, as int, b Dec, bs, digits, s int, got Dec, ok bool, want *big.Int) {
	t.Helper()
	fits := want.CmpAbs(ten(digits)) < 0
	if ok != fits || ok && got.big().Cmp(want) != 0 {
		t.Fatalf("%s of %v (scale %d) and %v (scale %d) to DECIMAL(%d, %d) = %v, %v; want %v, %v", op, a.big(), as, b.big(), bs, digits, s, got.big(), ok, want, fits)
	}
}

func TestDecimalArithmeticEqualsBigInt(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	for range 50_000 {
		ap, bp, digits := 1+r.IntN(38), 1+r.IntN(38), 1+r.IntN(38)
		as, bs, s := r.IntN(ap+1), r.IntN(bp+1), r.IntN(digits+1)
		a, b := someDec(r, ap), someDec(r, bp)
		m := max(as, bs)
		x, y := new(big.Int).Mul(a.big(), ten(m-as)), new(big.Int).Mul(b.big(), ten(m-bs))
		scaled := func(v *big.Int, from int) *big.Int { // from a scale to s
			return roundBig(new(big.Int).Mul(v, ten(s)), ten(from))
		}
		got, ok := DecAdd(a, as, b, bs, digits, s)
		checkDec(t, "sum", a, as, b, bs, digits, s, got, ok, scaled(new(big.Int).Add(x, y), m))
		got, ok = DecSub(a, as, b, bs, digits, s)
		checkDec(t, "difference", a, as, b, bs, digits, s, got, ok, scaled(new(big.Int).Sub(x, y), m))
		if drop := as + bs - s; drop >= 0 {
			got, ok = DecMul(a, b, drop, digits)
			checkDec(t, "product", a, as, b, bs, digits, s, got, ok, scaled(new(big.Int).Mul(a.big(), b.big()), as+bs))
		}
		if y.Sign() != 0 {
			got, ok = DecDiv(a, b, s+bs-as, digits)
			checkDec(t, "quotient", a, as, b, bs, digits, s, got, ok, roundBig(new(big.Int).Mul(x, ten(s)), y))
			got, ok = DecMod(a, as, b, bs, digits, s)
			checkDec(t, "rest", a, as, b, bs, digits, s, got, ok, scaled(new(big.Int).Rem(x, y), m))
		}
		got, ok = a.Rescale(as, s, digits)
		checkDec(t, "rescale", a, as, b, bs, digits, s, got, ok, scaled(a.big(), as))
		if got, want := DecCmp(a, as, b, bs), x.Cmp(y); got != want {
			t.Fatalf("DecCmp(%v, %d, %v, %d) = %d, want %d", a.big(), as, b.big(), bs, got, want)
		}
		if s <= as {
			down, rest := new(big.Int).DivMod(a.big(), ten(as-s), new(big.Int))
			if got := a.Floor(as, s).big(); got.Cmp(down) != 0 {
				t.Fatalf("Floor(%v, %d, %d) = %v, want %v", a.big(), as, s, got, down)
			}
			if rest.Sign() != 0 {
				down.Add(down, big.NewInt(1))
			}
			if got := a.Ceil(as, s).big(); got.Cmp(down) != 0 {
				t.Fatalf("Ceil(%v, %d, %d) = %v, want %v", a.big(), as, s, got, down)
			}
			if got, want := a.Trunc(as, s).big(), new(big.Int).Quo(a.big(), ten(as-s)); got.Cmp(want) != 0 {
				t.Fatalf("Trunc(%v, %d, %d) = %v, want %v", a.big(), as, s, got, want)
			}
		}
	}
}
