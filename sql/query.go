package sql

import (
	"github.com/millrace-stream/millrace/sql/diag"
	"github.com/millrace-stream/millrace/sql/rel"
)

// Query plans a query alone, all of it in one subtask. Its rows go to what Options.Collect gives.
func (s *Session) Query(n rel.Node) (*App, diag.List) {
	one := *s
	one.o.OneSubtask = true
	return one.App([]*rel.Sink{Collected(n)})
}
