package compile

import (
	stdcontext "context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/millrace-stream/millrace/connector"
	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/expr"
	"github.com/millrace-stream/millrace/sql/fn"
	"github.com/millrace-stream/millrace/sql/rel"
)

// LookupOptions are the options that every table has which can be asked by key.
var LookupOptions = []format.Option{
	{Name: "lookup.cache", Kind: format.Enum, Default: "NONE", Values: []string{"NONE", "PARTIAL", "FULL"}, Doc: "PARTIAL keeps the rows of keys that were asked for in the memory of each subtask. FULL is not supported."},
	{Name: "lookup.partial-cache.max-rows", Kind: format.Integer, Doc: "How many rows a PARTIAL cache has at most; a key without rows counts as one. The oldest keys go first."},
	{Name: "lookup.partial-cache.expire-after-write", Kind: format.Duration, Doc: "How long after they were asked for the rows of a key are kept."},
	{Name: "lookup.partial-cache.expire-after-access", Kind: format.Duration, Doc: "How long after they were last used the rows of a key are kept."},
	{Name: "lookup.partial-cache.cache-missing-key", Kind: format.Boolean, Default: "true", Doc: "Keep also that a key has no rows."},
}

// LookupHints are the options of the hint LOOKUP.
var LookupHints = []format.Option{
	{Name: "table", Kind: format.Text, Required: true, Doc: "The table, by the name that it has in the query."},
	{Name: "async", Kind: format.Boolean, Doc: "Whether keys are asked for beside the subtask, many at a time; by default where the connector has to wait for answers."},
	{Name: "output-mode", Kind: format.Enum, Values: []string{"ordered", "allow_unordered"}, Doc: "allow_unordered lets answers overtake each other, of a left side that has new rows only. Default: table.exec.async-lookup.output-mode, which is ORDERED."},
	{Name: "capacity", Kind: format.Integer, Doc: "How many rows of a subtask wait for answers at most. Default: table.exec.async-lookup.buffer-capacity, which is 100."},
	{Name: "timeout", Kind: format.Duration, Doc: "How long a row waits, all tries together; then it goes by the policy for errors. Default: table.exec.async-lookup.timeout, which is 3 min."},
	{Name: "retry-predicate", Kind: format.Enum, Values: []string{"lookup_miss"}, Doc: "Ask again for a key that has no rows yet; with retry-strategy, fixed-delay and max-attempts."},
	{Name: "retry-strategy", Kind: format.Enum, Values: []string{"fixed_delay"}, Doc: "How long to wait before asking again: always fixed-delay."},
	{Name: "fixed-delay", Kind: format.Duration, Doc: "Wait before asking again."},
	{Name: "max-attempts", Kind: format.Integer, Doc: "How often a key without rows is asked for again."},
}

// lookupJoin is a lookup join that is compiled.
type lookupJoin struct {
	n                   *rel.PLookupJoin
	in, right, key, out *row.Layout
	ask                 *connector.Lookup

	async     bool
	calls     processor.AsyncOptions
	attempts  int // of a key without rows, in all
	cached    bool
	cache     processor.AsyncCache[lookupRows]
	readsLate []*lateTable // whose rows go along
}

// lookupRows is an answer: packed rows.
type lookupRows []string

// lookupWait is what waits for an answer: a row, with the row of its source that may be late in front of it. Both are packed.
type lookupWait = string

// lookup asks a table for each row.
func (c *compiler) lookup(n *rel.PLookupJoin, ins []flow) (stream, error) {
	j, err := c.lookupJoin(n)
	if err != nil {
		return stream{}, err
	}
	if !j.async {
		return c.step(n, ins, "lookup", j.answered)
	}
	if err := c.compiles(n, j.asking, j.padding); err != nil {
		return stream{}, err
	}
	asked := processor.Transform(ins, "", func(ctx *processor.TransformContext[*row.Row, processor.AsyncPair[lookupWait, string]]) {
		env := c.envOf(ctx)
		keyOf, err := j.asking(env)
		if err != nil {
			ctx.Fail(err)
			return
		}
		w := carryWriter{rowWriter: rowWriter{layout: j.in}, late: j.readsLate, carried: carriedOf(ctx)}
		var buf []byte
		ctx.OnRecord(func(_ int, r *row.Row) error {
			env.Watermark = ctx.Watermark()
			v := processor.AsyncPair[lookupWait, string]{}
			if k := keyOf(r); k != nil {
				buf = j.key.Pack(buf[:0], k)
				v.Value = string(buf)
			}
			buf = w.AppendValue(buf[:0], r)
			v.Along = string(buf)
			return ctx.Emit(v)
		})
	}, processor.Name("lookup"))
	var by func(string) string
	if j.cached {
		by = func(key string) string { return key }
	}
	answers := processor.AsyncPairs(asked, c.id(n, "lookup"), j.calls, by, j.cache, j.asker())
	return processor.Transform([]processor.Flow[processor.AsyncPair[lookupWait, lookupRows]]{answers}, "", func(ctx *processor.TransformContext[processor.AsyncPair[lookupWait, lookupRows], *row.Row]) {
		env := c.envOf(ctx)
		join, err := j.padding(env)
		if err != nil {
			ctx.Fail(err)
			return
		}
		k := carriedOf(ctx)
		d := carryReader{rowReader: rowReader{j.in, j.in.New()}, late: j.readsLate}
		right := j.right.New()
		var rows lookupRows
		each := func(yield func(*row.Row) error) error {
			for _, text := range rows {
				if err := j.right.Unpack([]byte(text), right); err != nil {
					return err
				}
				if err := yield(right); err != nil {
					return err
				}
			}
			return nil
		}
		ctx.OnRecord(func(_ int, v processor.AsyncPair[lookupWait, lookupRows]) error {
			env.Watermark = ctx.Watermark()
			r, err := d.Read(nil, []byte(v.Along), ctx.Time())
			if err != nil {
				return err
			}
			rows = v.Value
			run := func() error { return join(r, each, ctx.Emit) }
			return k.resume(&d, run)
		})
	}, processor.Name("lookup")), nil
}

// lookupJoin reads the settings of a lookup join.
func (c *compiler) lookupJoin(n *rel.PLookupJoin) (*lookupJoin, error) {
	conn, err := c.o.Connector(n.Table, n.Options)
	if err != nil {
		return nil, fail(n, "E3701", err)
	}
	j := &lookupJoin{n: n, in: rel.Layout(n.In[0]), out: rel.Layout(n)}
	width := j.in.Len()
	var types, keyTypes []*row.Type
	for i := range n.Columns {
		types = append(types, j.out.Type(width+i))
	}
	var keys []int
	for _, k := range n.Keys {
		at := -1
		for i, col := range n.Columns {
			if col == k.Column {
				at = i
			}
		}
		if at < 0 {
			return nil, fail(n, "E3706", errors.New("a key column of the lookup is not read"))
		}
		keys = append(keys, at)
		keyTypes = append(keyTypes, k.Value.Type())
	}
	j.right, j.key = row.NewLayout(types...), row.NewLayout(keyTypes...)
	j.ask, err = conn.Lookup(connector.Table{Table: n.Table, Options: n.Options, Columns: n.Columns, Layout: j.right, Zone: c.o.Zone}, keys)
	if err == nil {
		err = j.settings(c.config)
	}
	if err != nil {
		return nil, fail(n, "E3702", fmt.Errorf("look up table %s: %w", n.Table.Path, err))
	}
	j.readsLate = c.carries[n]
	return j, nil
}

// settings reads the table's options, the hint LOOKUP and the script's settings.
func (j *lookupJoin) settings(config map[string]string) error {
	values := map[string]string{}
	for k, v := range j.n.Options {
		if k == "lookup.cache" || strings.HasPrefix(k, "lookup.partial-cache.") {
			values[k] = v
		}
	}
	o, err := format.ReadOptions("", values, LookupOptions)
	if err != nil {
		return err
	}
	switch strings.ToUpper(o.Text("lookup.cache")) {
	case "FULL":
		return errors.New("'lookup.cache' = 'FULL' is not supported; use PARTIAL, or read the table as a stream with FOR SYSTEM_TIME AS OF an event time")
	case "PARTIAL":
		j.cached = true
	}
	if len(values) > 0 && !j.cached {
		for k := range values {
			if k != "lookup.cache" {
				return fmt.Errorf("option '%s' needs 'lookup.cache' = 'PARTIAL'", k)
			}
		}
	}
	j.cache = processor.AsyncCache[lookupRows]{Size: int(o.Int("lookup.partial-cache.max-rows")),
		AfterWrite: o.Duration("lookup.partial-cache.expire-after-write"), AfterAccess: o.Duration("lookup.partial-cache.expire-after-access")}
	if j.cached && j.cache.Size == 0 && j.cache.AfterWrite == 0 && j.cache.AfterAccess == 0 {
		return errors.New("'lookup.cache' = 'PARTIAL' needs a bound: set lookup.partial-cache.max-rows, .expire-after-write or .expire-after-access")
	}
	if j.cached && j.cache.Size == 0 {
		j.cache.Size = math.MaxInt
	}
	missing := o.Bool("lookup.partial-cache.cache-missing-key")
	j.cache.Cost = func(rows lookupRows) int {
		if len(rows) == 0 && missing {
			return 1
		}
		return len(rows)
	}
	h := &format.Options{}
	if j.n.Hint != nil {
		if h, err = format.ReadOptions("", j.n.Hint, LookupHints); err != nil {
			return fmt.Errorf("hint LOOKUP: %w", err)
		}
	}
	if j.async = j.ask.Waits || j.cached; j.n.Hint["async"] != "" {
		j.async = h.Bool("async")
	}
	if j.cached && !j.async {
		return errors.New("hint LOOKUP: 'async' = 'false' and 'lookup.cache' exclude each other")
	}
	const prefix = "table.exec.async-lookup."
	capacity, timeout, mode := 100, 3*time.Minute, config[prefix+"output-mode"]
	if v := config[prefix+"buffer-capacity"]; v != "" {
		if _, err := fmt.Sscan(v, &capacity); err != nil {
			return fmt.Errorf("SET '%sbuffer-capacity' = '%s': must be a number", prefix, v)
		}
	}
	if v := config[prefix+"timeout"]; v != "" {
		if timeout, err = row.ParseDuration(v); err != nil {
			return fmt.Errorf("SET '%stimeout': %w", prefix, err)
		}
	}
	if j.n.Hint["capacity"] != "" {
		capacity = int(h.Int("capacity"))
	}
	if j.n.Hint["timeout"] != "" {
		timeout = h.Duration("timeout")
	}
	if v := j.n.Hint["output-mode"]; v != "" {
		mode = v
	}
	if capacity < 1 || timeout < time.Millisecond {
		return fmt.Errorf("hint LOOKUP: capacity %d and timeout %s must be more than 0", capacity, timeout)
	}
	j.calls = processor.AsyncOptions{Capacity: capacity, Timeout: timeout,
		Unordered: strings.EqualFold(mode, "ALLOW_UNORDERED") && j.n.In[0].Common().Kinds == rel.Inserts}
	j.attempts = 1
	if j.n.Hint["retry-predicate"] == "" {
		return nil
	}
	delay, n := h.Duration("fixed-delay"), int(h.Int("max-attempts"))
	if j.n.Hint["retry-strategy"] == "" || delay <= 0 || n < 1 {
		return errors.New("hint LOOKUP: 'retry-predicate' needs 'retry-strategy' = 'fixed_delay', 'fixed-delay' and 'max-attempts'")
	}
	if !j.async {
		return errors.New("hint LOOKUP: keys are asked for again only with 'async' = 'true': rows behind would wait")
	}
	j.attempts = n + 1
	j.calls.Retry = processor.Retry{Attempts: j.attempts, Backoff: delay, MaxBackoff: delay, If: func(err error) bool { return errors.Is(err, errMiss) }}
	return nil
}

// errMiss is that a key has no rows and is to be asked for again.
var errMiss = errors.New("the key has no rows")

// asker asks for a packed key. It is called by several goroutines at once.
func (j *lookupJoin) asker() func(ctx stdcontext.Context, key string) (lookupRows, error) {
	type one struct {
		ask    func(ctx stdcontext.Context, key *row.Row, next func() *row.Row) error
		key    *row.Row
		buffer rowBuffer
	}
	var mu sync.Mutex
	var idle []*one
	tries := map[stdcontext.Context]int{} // of keys without rows
	take := func() (*one, error) {
		mu.Lock()
		defer mu.Unlock()
		if n := len(idle); n > 0 {
			a := idle[n-1]
			idle = idle[:n-1]
			return a, nil
		}
		ask, err := j.ask.Open()
		return &one{ask, j.key.New(), rowBuffer{layout: j.right}}, err
	}
	again := func(ctx stdcontext.Context) bool {
		mu.Lock()
		defer mu.Unlock()
		if tries[ctx]++; tries[ctx] == 1 {
			stdcontext.AfterFunc(ctx, func() {
				mu.Lock()
				defer mu.Unlock()
				delete(tries, ctx)
			})
		}
		return tries[ctx] < j.attempts
	}
	return func(ctx stdcontext.Context, key string) (lookupRows, error) {
		if key == "" { // a NULL in it: it equals nothing
			return nil, nil
		}
		a, err := take()
		if err != nil {
			return nil, err
		}
		if err := j.key.Unpack([]byte(key), a.key); err != nil {
			return nil, err
		}
		a.buffer.used = 0
		if err := a.ask(ctx, a.key, a.buffer.next); err != nil {
			return nil, err
		}
		rows := make(lookupRows, 0, a.buffer.used)
		for _, r := range a.buffer.rows[:a.buffer.used] {
			rows = append(rows, string(j.right.Pack(nil, r)))
		}
		mu.Lock()
		idle = append(idle, a)
		mu.Unlock()
		if len(rows) == 0 && j.attempts > 1 && again(ctx) {
			return nil, errMiss
		}
		return rows, nil
	}
}

// rowBuffer is rows that are used again.
type rowBuffer struct {
	layout *row.Layout
	rows   []*row.Row
	used   int
}

func (b *rowBuffer) next() *row.Row {
	if b.used == len(b.rows) {
		b.rows = append(b.rows, b.layout.New())
	}
	r := b.rows[b.used]
	b.used++
	r.Kind, r.Plain = row.Insert, 0
	for i := range b.layout.Len() {
		r.SetNull(i)
	}
	return r
}

// compiles says whether the parts of a lookup join do.
func (c *compiler) compiles(n rel.Node, asking func(env *fn.Env) (func(r *row.Row) *row.Row, error), padding func(env *fn.Env) (joining, error)) error {
	_, err := asking(c.planEnv())
	if err == nil {
		_, err = padding(c.planEnv())
	}
	if err != nil {
		return fail(n, "E3704", err)
	}
	return nil
}

// asking makes the key of a row, nil if it has a NULL.
func (j *lookupJoin) asking(env *fn.Env) (func(r *row.Row) *row.Row, error) {
	var sets []func(out, in *row.Row)
	for i, k := range j.n.Keys {
		code, err := expr.Compile(env, j.in, k.Value)
		if err != nil {
			return nil, err
		}
		sets = append(sets, expr.Store(j.key, i, code, placeOf(k.Value)))
	}
	key := j.key.New()
	return func(r *row.Row) *row.Row {
		null := false
		for i, f := range sets {
			f(key, r)
			null = null || key.Null(i)
		}
		if null {
			return nil
		}
		return key
	}, nil
}

// joining joins a row with the rows that were found for it.
type joining func(r *row.Row, found func(yield func(*row.Row) error) error, emit func(*row.Row) error) error

// padding makes what joins.
func (j *lookupJoin) padding(env *fn.Env) (joining, error) {
	pass := func(*row.Row) bool { return true }
	if j.n.Cond != nil {
		var err error
		if pass, err = expr.Condition(env, j.out, j.n.Cond); err != nil {
			return nil, err
		}
	}
	out, width := j.out.New(), j.in.Len()
	return func(r *row.Row, found func(yield func(*row.Row) error) error, emit func(*row.Row) error) error {
		out.Kind, out.Time = r.Kind, r.Time
		for i := range width {
			j.out.CopyColumn(out, i, j.in, r, i)
		}
		any := false
		err := found(func(f *row.Row) error {
			for i := range j.right.Len() {
				j.out.CopyColumn(out, width+i, j.right, f, i)
			}
			if !pass(out) {
				return nil
			}
			any = true
			return emit(out)
		})
		if err != nil || any || j.n.Kind != rel.Left {
			return err
		}
		for i := width; i < j.out.Len(); i++ {
			out.SetNull(i)
		}
		return emit(out)
	}, nil
}

// answered is the join where answers are there at once.
func (j *lookupJoin) answered(env *fn.Env, ctx *context) (func(input int, r *row.Row) error, error) {
	keyOf, err := j.asking(env)
	if err != nil {
		return nil, err
	}
	join, err := j.padding(env)
	if err != nil || ctx == nil {
		return nil, err
	}
	ask, err := j.ask.Open()
	if err != nil {
		return nil, err
	}
	buffer := rowBuffer{layout: j.right}
	each := func(yield func(*row.Row) error) error {
		for _, r := range buffer.rows[:buffer.used] {
			if err := yield(r); err != nil {
				return err
			}
		}
		return nil
	}
	return func(_ int, r *row.Row) error {
		buffer.used = 0
		if k := keyOf(r); k != nil {
			if err := ask(stdcontext.Background(), k, buffer.next); err != nil {
				return err
			}
		}
		return join(r, each, ctx.Emit)
	}, nil
}
