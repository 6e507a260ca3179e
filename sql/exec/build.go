package exec

import (
	"fmt"

	"github.com/millrace-stream/millrace/sql/rel"
)

// New makes the operator of a physical node.
func New(n rel.Physical, c Context) (Operator, error) {
	switch n := n.(type) {
	case *rel.PNormalize:
		return newNormalize(n, c)
	case *rel.PMaterialize:
		return newMaterialize(n, c)
	case *rel.PLocalAgg:
		return newLocalAgg(n, c)
	case *rel.PGroupAgg:
		return newGroupAgg(n, c)
	case *rel.PSetCount:
		return newSetCount(n, c)
	case *rel.PTopN:
		return newTopN(n, c)
	case *rel.PLimit:
		return newLimit(n, c)
	case *rel.PDedup:
		return newDedup(n, c)
	case *rel.PJoin:
		return newJoin(n, c)
	case *rel.PWindowAgg:
		return newWindowAgg(n, c)
	case *rel.PWindow:
		return newWindow(n, c)
	case *rel.PWindowJoin:
		return newWindowJoin(n, c)
	case *rel.PWindowRank:
		return newWindowRank(n, c)
	case *rel.PIntervalJoin:
		return newIntervalJoin(n, c)
	case *rel.PTemporalJoin:
		return newTemporalJoin(n, c)
	case *rel.PMatch:
		return newMatch(n, c)
	case *rel.PTimeSort:
		return newTimeSort(n, c)
	case *rel.POverTime:
		return newOverTime(n, c)
	case *rel.POverColumn:
		return newOverColumn(n, c)
	}
	return nil, fmt.Errorf("%s: there is no operator for %T yet", n.Common().Id, n)
}
