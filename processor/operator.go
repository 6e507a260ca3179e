package processor

// Operator finds an operator by its id, as the place where a side output is taken (SideOutput): for code that has the topology
// but not the handles of its streams, such as tests.
func (t *Topology) Operator(id string) (Operator, bool) {
	n := t.ids[spaceOperator+id]
	return found{n}, n != nil
}

type found struct{ n *node }

func (f found) origin() *node { return f.n }

// ID is the id that NewOutputTag got.
func (tag OutputTag[T]) ID() string { return tag.id }
