// verify reads an output topic read_committed and compares it with the truth
// that it computes by running the generator again.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/millrace-stream/millrace/test/bench/common"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// checker compares the rows of an output with the truth.
type checker interface {
	add(value []byte)
	verdict() (text string, ok bool)
}

func main() {
	w := flag.String("w", "w1", "w0, w1, w2, hop, session, join or cep")
	out := flag.String("out", "out", "output topic")
	n := flag.Int64("n", 2_000_000, "records that gen or probe made, of join: in each of its topics")
	users := flag.Int("users", 10_000, "users")
	distinct := flag.Bool("distinct", false, "as gen")
	even := flag.Bool("even", false, "as gen")
	seed := flag.Uint64("seed", 1, "seed")
	flag.Parse()

	g := common.NewGen(*seed, *users, *distinct)
	g.Even = *even
	g.Step = common.PaceOf(*w).Step
	var t checker
	switch *w {
	case "w0", "w1", "w2":
		t = newTruth(*w, g, *n)
	default:
		right := common.NewGen(*seed+1, *users, *distinct) // the second topic of join
		right.Even = *even
		right.Step = g.Step
		t = newRows(*w, g, right, *n)
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
			fmt.Printf("  partition %d has an open transaction: LSO %d, HW %d\n", p, e, hw[p])
		}
		if e > 0 {
			offs[p] = kgo.NewOffset().At(0)
			left[p] = e
		}
	}
	cl.AddConsumePartitions(map[string]map[int32]kgo.Offset{*out: offs})

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
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
			t.add(r.Value)
		})
	}
	text, ok := t.verdict()
	fmt.Println(text)
	if !ok {
		os.Exit(1)
	}
}
