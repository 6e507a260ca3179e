// verify reads an output topic read_committed and compares it with the truth
// that it computes by running the generator again.
package main

import (
	"context"
	"flag"
	"fmt"
	"math"
	"os"
	"strconv"
	"time"

	"github.com/millrace-stream/millrace/test/bench/common"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

type agg struct {
	n   int64
	sum int64 // cents
}

type wkey struct {
	user string
	win  int64
}

func main() {
	w := flag.String("w", "w1", "w0, w1 or w2")
	out := flag.String("out", "out", "output topic")
	n := flag.Int64("n", 2_000_000, "records that gen or probe made")
	users := flag.Int("users", 10_000, "users")
	distinct := flag.Bool("distinct", false, "as gen")
	seed := flag.Uint64("seed", 1, "seed")
	flag.Parse()

	truth := map[wkey]*agg{}
	var rows int64
	g := common.NewGen(*seed, *users, *distinct)
	for i := int64(0); i < *n; i++ {
		r := g.Next()
		if *w == "w0" && r.Cents < 100 {
			continue
		}
		k := wkey{user: string(common.UserKey(r.User))}
		if *w == "w2" {
			k.win = r.TS - r.TS%10_000
		}
		a := truth[k]
		if a == nil {
			a = &agg{}
			truth[k] = a
		}
		a.n++
		a.sum += int64(r.Cents)
		rows++
	}
	if *w == "w2" {
		rows = int64(len(truth))
	}

	cl := common.Client(kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(), kgo.FetchMaxPartitionBytes(8<<20))
	defer cl.Close()
	adm := kadm.NewClient(cl)
	ends, err := common.Ends(adm, *out, true)
	common.Must(err)
	hw, err := common.Ends(adm, *out, false)
	common.Must(err)
	offs := map[int32]kgo.Offset{}
	left := map[int32]int64{} // ends that are not reached yet
	for p, e := range ends {
		if hw[p] != e {
			fmt.Printf("note: partition %d has an open transaction: LSO %d, HW %d\n", p, e, hw[p])
		}
		if e > 0 {
			offs[p] = kgo.NewOffset().At(0)
			left[p] = e
		}
	}
	cl.AddConsumePartitions(map[string]map[int32]kgo.Offset{*out: offs})

	got := map[wkey]*agg{}
	var gotRows, dupOrGap, bad int64
	num := func(b []byte, f string) float64 {
		x, err := strconv.ParseFloat(string(common.Field(b, f)), 64)
		if err != nil {
			return math.NaN()
		}
		return x
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	for len(left) > 0 {
		fs := cl.PollFetches(ctx)
		common.Must(fs.Err0())
		fs.EachRecord(func(r *kgo.Record) {
			end, reading := left[r.Partition]
			if r.Offset+1 >= end {
				delete(left, r.Partition)
			}
			if !reading || r.Offset >= end || r.Attrs.IsControl() {
				return
			}
			u := string(common.Field(r.Value, "user"))
			if len(u) > 1 && u[0] == 'z' {
				return
			}
			gotRows++
			k := wkey{user: u}
			if *w == "w2" {
				k.win = int64(num(r.Value, "start"))
			}
			a := got[k]
			if a == nil {
				a = &agg{}
				got[k] = a
			}
			switch *w {
			case "w0":
				a.n++
				a.sum += int64(math.Round(num(r.Value, "amount") * 100))
			case "w1":
				c := int64(num(r.Value, "count"))
				if c != a.n+1 {
					dupOrGap++
				}
				a.n = c
				a.sum = int64(math.Round(num(r.Value, "sum") * 100))
			case "w2":
				if a.n != 0 {
					dupOrGap++
				}
				a.n = int64(num(r.Value, "count"))
				a.sum = int64(math.Round(num(r.Value, "sum") * 100))
			}
		})
	}
	var wrong, missing, over, under int64
	where := map[string]int{}
	for k, t := range truth {
		a := got[k]
		switch {
		case a == nil:
			missing++
			where[fmt.Sprintf("window %d", k.win)]++
		case a.n != t.n || a.sum != t.sum:
			wrong++
			if a.n > t.n {
				over++
			} else if a.n < t.n {
				under++
			}
			if wrong <= 3 {
				fmt.Printf("  %v: got %d/%d, truth %d/%d\n", k, a.n, a.sum, t.n, t.sum)
			}
		}
	}
	if len(where) > 0 && len(where) < 30 {
		fmt.Printf("  missing: %v\n", where)
	}
	extra := int64(0)
	for k := range got {
		if truth[k] == nil {
			extra++
		}
	}
	res := "OK"
	if wrong+missing+extra+dupOrGap+bad > 0 || gotRows != rows {
		res = "WRONG"
	}
	fmt.Printf("verify %s %s: rows %d (truth %d), keys %d (truth %d): wrong %d (over %d, under %d), missing %d, extra %d, count steps not +1 or doubled %d\n",
		*w, res, gotRows, rows, len(got), len(truth), wrong, over, under, missing, extra, dupOrGap)
	if res != "OK" {
		os.Exit(1)
	}
}
