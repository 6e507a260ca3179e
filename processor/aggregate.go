package processor

import (
	"reflect"

	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/statestore"
)

// stateCodec is the codec of the operator's state of type V, with those of the migrations that it was given that lead to
// V; it collects an error if there is none.
func stateCodec[V any](n *node, what string) (statestore.Codec[V], []string) {
	c, err := statestore.CodecOf[V]()
	if err != nil {
		n.fail("%s: %w", what, err)
		return nil, nil
	}
	m := n.migrationsTo(reflect.TypeFor[V]())
	if c, err = statestore.Migrating(c, m...); err != nil {
		n.fail("%w", err)
	}
	return c, schemasOf(m)
}

// partsCodec is stateCodec for a V of the operator's own that holds values of the user's, the parts, of the types of.
func partsCodec[V any](n *node, what string, of ...reflect.Type) (statestore.Codec[V], []string) {
	for _, t := range of {
		n.migrationsTo(t)
	}
	c, forms, err := statestore.CodecOfParts[V](n.migrations)
	if err != nil {
		n.fail("%s: %w", what, err)
		return nil, nil
	}
	return c, forms
}

// migrationsTo are those of MigrateState that lead to a type of which the operator keeps values.
func (n *node) migrationsTo(t reflect.Type) []statestore.Migration {
	leading := statestore.Leading(t, n.migrations)
	for _, m := range leading {
		from, _ := m.Types()
		if n.migrated == nil {
			n.migrated = map[reflect.Type]bool{}
		}
		n.migrated[from] = true
	}
	return leading
}

func schemasOf(migrations []statestore.Migration) []string {
	var schemas []string
	for _, m := range migrations {
		schemas = append(schemas, m.Schema())
	}
	return schemas
}

func schemaOf[V any](c statestore.Codec[V]) string {
	if c == nil {
		return ""
	}
	return c.Schema()
}

// Reduce keeps one value for each key: the first is kept as it is, each later one is combined with what is kept, and
// every record emits the new value. State: "<id>/value". Flink: reduce.
func Reduce[K comparable, T any](from KeyedStream[K, T], id string, f func(kept, v T) T, o ...Option) KeyedStream[K, T] {
	return running(from, "reduce", id, "", f != nil, func(acc *T, existed bool, v T) {
		if existed {
			v = f(*acc, v)
		}
		*acc = v
	}, func(_ K, acc T, _ T) T { return acc }, o)
}

// RunningAggregate keeps an accumulator for each key over all time; every record emits the result of it. State:
// "<id>/value".
func RunningAggregate[K comparable, T, A, R any](from KeyedStream[K, T], id string, agg Aggregator[T, A], result func(K, A, T) R, o ...Option) KeyedStream[K, R] {
	return running(from, "running-aggregate", id, agg.name, agg.Add != nil && result != nil, agg.add(), result, o)
}

// add is Add with Init.
func (a Aggregator[T, A]) add() func(acc *A, existed bool, v T) {
	add, init := a.Add, a.Init
	if init == nil {
		return func(acc *A, _ bool, v T) { add(acc, v) }
	}
	return func(acc *A, existed bool, v T) {
		if !existed {
			*acc = init()
		}
		add(acc, v)
	}
}

func running[K comparable, T, A, R any](from KeyedStream[K, T], kind, id, aggregate string, complete bool, add func(acc *A, existed bool, v T), result func(K, A, T) R, o []Option) KeyedStream[K, R] {
	s := from.must()
	n := s.n.t.add(kind, spaceOperator, id, s.n).with(o)
	n.need(complete, "function")
	codec, migrations := stateCodec[A](n, "state type")
	schema := schemaOf(codec)
	n.ttlTaken = true
	if n.ttl != nil && n.ttl.After > 0 {
		schema = stampedSchema(codec)
	}
	spec := n.store("value", statestore.KindTable, s.keys.schema(), schema)
	spec.Aggregate, spec.Migrations = aggregate, migrations
	out := newKeyed[K, R](n, s.keys)
	s.attach(func(b *builder) keyedStep[K, T] {
		next, op := out.s.step(b), b.op(n)
		if n.ttl != nil && n.ttl.After > 0 {
			table, err := statestore.NewTable(b.state(), n.specOf("value"), s.keys.codec, statestore.StampedCodec(codec))
			if err != nil {
				b.fail(n, err)
				return nil
			}
			b.sweep(n, *n.ttl, statestore.SweepTable(table))
			l := life{ttl: *n.ttl}
			return func(x *task.Exec, k K, v T) error {
				x.Op = op
				acc, existed := updateAlive(&l, table, x, k)
				add(acc, existed, v)
				return next(x, k, result(k, *acc, v))
			}
		}
		table, err := statestore.NewTable(b.state(), n.specOf("value"), s.keys.codec, codec)
		if err != nil {
			b.fail(n, err)
			return nil
		}
		return func(x *task.Exec, k K, v T) error {
			x.Op = op
			acc, existed := table.Update(x.Group, k)
			add(acc, existed, v)
			return next(x, k, result(k, *acc, v))
		}
	})
	return out
}
