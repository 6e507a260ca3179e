// Package print is the connector of tables whose rows are printed, one a line.
package print //nolint:predeclared,forbidigo // the name of the connector

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/millrace-stream/millrace/connector"
	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/catalog"
)

// New is the connector 'print', which writes to the standard output and error of the process.
func New() connector.Connector { return To(os.Stdout, os.Stderr) }

// To is New with other places for the two.
func To(out, err io.Writer) connector.Connector {
	return &printer{out: &shared{w: out}, err: &shared{w: err}}
}

type printer struct{ out, err *shared }

// shared is a place that several subtasks write to, each some whole lines at a time.
type shared struct {
	mu sync.Mutex
	w  io.Writer
}

func (s *shared) write(b []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.w.Write(b)
	return err
}

var options = []format.Option{
	{Name: "print-identifier", Kind: format.Text, Doc: "A text in front of each row, so that the rows of several tables can be told apart."},
	{Name: "standard-error", Kind: format.Boolean, Default: "false", Doc: "Print to the standard error instead of the standard output."},
	{Name: "sink.parallelism", Kind: format.Integer, Doc: "No effect: rows are printed by the subtasks that made them.", NoEffect: "rows are printed by the subtasks that made them"},
}

// Spec is of connector.Connector.
func (p *printer) Spec() connector.Spec {
	return connector.Spec{Options: options,
		Doc: "Prints each row on a line, with its kind, as +I[1, a]. In several subtasks the number of the subtask stands in front, from 1, as 2> +I[1, a]; with an identifier it is id:2> +I[1, a]. " +
			"Rows are printed when their epoch is committed: none is printed twice. A crash between the commit and the printing loses the lines of that epoch."}
}

// Traits is of connector.Connector.
func (p *printer) Traits(t connector.Table) (connector.Traits, error) {
	_, err := connector.Options(t.Options, options)
	return connector.Traits{Writes: catalog.Retract, CanWrite: true, Unused: connector.NoEffect(t.Options, options)}, err
}

// Source is of connector.Connector.
func (p *printer) Source(connector.Table) (*connector.Source, error) {
	return nil, errors.New("connector 'print' can be written only")
}

// Lookup is of connector.Connector.
func (p *printer) Lookup(connector.Table, []int) (*connector.Lookup, error) {
	return nil, errors.New("connector 'print' can be written only")
}

// Sink is of connector.Connector.
func (p *printer) Sink(t connector.Table) (*connector.Sink, error) {
	o, err := connector.Options(t.Options, options)
	if err != nil {
		return nil, err
	}
	to := p.out
	if o.Bool("standard-error") {
		to = p.err
	}
	return &connector.Sink{
		Open: func(ctx *processor.SubtaskContext, w *processor.SinkWriter) (func(r *row.Row) error, error) {
			prefix := prefix(o.Text("print-identifier"), ctx.Subtask())
			return func(r *row.Row) error {
				line := append(appendRow(append(w.Buf(), prefix...), t.Layout, r), '\n')
				return w.Write(processor.SinkRecord{Value: w.Keep(line)})
			}, nil
		},
		External: func(*processor.SubtaskContext) (processor.External, error) { return &lines{to: to}, nil },
	}, nil
}

// prefix is what stands in front of the rows of a subtask.
func prefix(id string, s processor.Subtask) string {
	if s.Parallelism > 1 {
		if id != "" {
			id += ":"
		}
		id += fmt.Sprint(s.Index + 1)
	}
	if id != "" {
		id += "> "
	}
	return id
}

// lines is the External of a subtask: it holds the lines of an epoch until it is committed.
type lines struct {
	to   *shared
	held []byte
}

// Begin is of processor.External.
func (l *lines) Begin(context.Context, processor.Begun) error { return nil }

// Write is of processor.External.
func (l *lines) Write(_, value []byte) error {
	l.held = append(l.held, value...)
	return nil
}

// Prepare is of processor.External.
func (l *lines) Prepare(context.Context, uint64, bool) ([]byte, error) { return nil, nil }

// Finish is of processor.External.
func (l *lines) Finish(context.Context) error {
	if len(l.held) == 0 {
		return nil
	}
	err := l.to.write(l.held)
	l.held = l.held[:0]
	return err
}

// Due is of processor.External.
func (l *lines) Due() int64 { return processor.Never }

// Close is of processor.External.
func (l *lines) Close() error { return nil }
