package memstore

import "bytes"

// node is a node of a persistent treap: a binary search tree by key and a heap by prio. Nodes are never changed once
// they are linked, so that a root is a snapshot: an iterator or the flushed state just keeps the root it started from.
type node struct {
	key, value  []byte
	prio        uint32
	bytes       int64 // of all keys and values in this subtree
	left, right *node
}

func (n *node) total() int64 {
	if n == nil {
		return 0
	}
	return n.bytes
}

// with returns a copy of n that has other children.
func (n *node) with(left, right *node) *node {
	return &node{
		key: n.key, value: n.value, prio: n.prio, left: left, right: right,
		bytes: int64(len(n.key)+len(n.value)) + left.total() + right.total(),
	}
}

// prioOf is FNV-1a with a final mix. The shape of a tree depends only on its keys: runs with equal input are equal.
func prioOf(key []byte) uint32 {
	h := uint64(14695981039346656037)
	for _, c := range key {
		h = (h ^ uint64(c)) * 1099511628211
	}
	h = (h ^ h>>32) * 0x9e3779b97f4a7c15
	return uint32(h >> 32)
}

func (n *node) get(key []byte) (*node, bool) {
	for n != nil {
		switch c := bytes.Compare(key, n.key); {
		case c == 0:
			return n, true
		case c < 0:
			n = n.left
		default:
			n = n.right
		}
	}
	return nil, false
}

// split cuts a tree into the keys below and those from key on.
func (n *node) split(key []byte) (below, rest *node) {
	if n == nil {
		return nil, nil
	}
	if bytes.Compare(n.key, key) < 0 {
		mid, rest := n.right.split(key)
		return n.with(n.left, mid), rest
	}
	below, mid := n.left.split(key)
	return below, n.with(mid, n.right)
}

// merge joins two trees; all keys of a are below those of b.
func merge(a, b *node) *node {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	case a.prio >= b.prio:
		return a.with(a.left, merge(a.right, b))
	default:
		return b.with(merge(a, b.left), b.right)
	}
}

// set puts a key; it keeps the slices.
func (n *node) set(key, value []byte) *node {
	return n.insert(&node{key: key, value: value, prio: prioOf(key)})
}

func (n *node) insert(in *node) *node {
	if n == nil {
		return in.with(nil, nil)
	}
	c := bytes.Compare(in.key, n.key)
	switch {
	case c == 0:
		return in.with(n.left, n.right)
	case in.prio > n.prio: // in is not below n: equal keys have equal priorities
		return in.with(n.split(in.key))
	case c < 0:
		return n.with(n.left.insert(in), n.right)
	default:
		return n.with(n.left, n.right.insert(in))
	}
}

func (n *node) delete(key []byte) *node {
	if _, ok := n.get(key); !ok {
		return n
	}
	return n.cut(key)
}

// cut removes a key that is there.
func (n *node) cut(key []byte) *node {
	switch c := bytes.Compare(key, n.key); {
	case c == 0:
		return merge(n.left, n.right)
	case c < 0:
		return n.with(n.left.cut(key), n.right)
	default:
		return n.with(n.left, n.right.cut(key))
	}
}

// deleteRange removes lo <= key < hi; hi nil means no bound.
func (n *node) deleteRange(lo, hi []byte) *node {
	below, rest := n.split(lo)
	if hi == nil {
		return below
	}
	_, above := rest.split(hi)
	return merge(below, above)
}

// cursor walks a tree in key order: the stack holds the nodes whose key is still to come.
type cursor struct{ stack []*node }

func (c *cursor) seek(n *node, lo []byte) {
	for n != nil {
		if bytes.Compare(n.key, lo) >= 0 {
			c.stack = append(c.stack, n)
			n = n.left
		} else {
			n = n.right
		}
	}
}

func (c *cursor) next() *node {
	if len(c.stack) == 0 {
		return nil
	}
	n := c.stack[len(c.stack)-1]
	c.stack = c.stack[:len(c.stack)-1]
	for m := n.right; m != nil; m = m.left {
		c.stack = append(c.stack, m)
	}
	return n
}
