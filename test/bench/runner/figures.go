package main

import (
	"bufio"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// median is the middle value, or the mean of the two in the middle; 0 of none.
func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Sorted(slices.Values(v))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// round keeps so many digits behind the point.
func round(f float64, digits int) float64 {
	p := math.Pow10(digits)
	return math.Round(f*p) / p
}

func sum(m map[int32]int64) (s int64) {
	for _, v := range m {
		s += v
	}
	return s
}

// number is the value of a figure in a line.
func number(x any) (float64, bool) {
	switch x := x.(type) {
	case int64:
		return float64(x), true
	case int:
		return float64(x), true
	case float64:
		return x, true
	}
	return 0, false
}

// point is what was seen of a run at a moment.
type point struct {
	at        time.Duration // since the start
	committed int64         // input records, by the group's offsets
	cpu       float64       // seconds so far
}

// rates are the figures of a run that had read records records at the point last; first is the first point at
// which offsets were committed.
func rates(first, last point, records int64) m {
	r := m{"total_s": round(last.at.Seconds(), 1), "cpu_s": round(last.cpu, 2)}
	if last.at > 0 {
		r["rps_total"] = int64(float64(records) / last.at.Seconds())
	}
	if last.cpu > 0 {
		r["rpcpu_total"] = int64(float64(records) / last.cpu)
	}
	if rest := records - first.committed; rest > 0 && last.at > first.at && last.cpu > first.cpu {
		r["rps_steady"] = int64(float64(rest) / (last.at - first.at).Seconds())
		r["rpcpu_steady"] = int64(float64(rest) / (last.cpu - first.cpu))
		r["steady_share"] = round(float64(rest)/float64(records), 2)
	}
	return r
}

// moved is how many partitions have a new row at or before their last stable offset; base holds the end offsets before.
// A marker of the transaction that the killed process left is no row, and takes one offset.
func moved(base, stable map[int32]int64) (n int) {
	for p, o := range stable {
		if o > base[p]+1 {
			n++
		}
	}
	return n
}

// commitsOf adds up the committed transactions in a page of /metrics.
func commitsOf(page io.Reader) (n float64) {
	s := bufio.NewScanner(page)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		l := s.Text()
		if !strings.HasPrefix(l, "millrace_transactions_total{") || !strings.Contains(l, `outcome="committed"`) {
			continue
		}
		f := strings.Fields(l[strings.LastIndexByte(l, '}')+1:])
		if len(f) > 0 {
			v, _ := strconv.ParseFloat(f[0], 64)
			n += v
		}
	}
	return n
}

// commits is how many transactions the processes have committed, and false where one does not tell.
func (t team) commits() (n float64, ok bool) {
	c := http.Client{Timeout: 2 * time.Second}
	for _, p := range t {
		if p.metrics == "" {
			return 0, false
		}
		resp, err := c.Get("http://" + p.metrics + "/metrics")
		if err != nil {
			return 0, false
		}
		n += commitsOf(resp.Body)
		resp.Body.Close()
	}
	return n, true
}
