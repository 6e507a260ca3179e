package cli

import (
	"strings"

	"github.com/millrace-stream/millrace/configs"
	"github.com/millrace-stream/millrace/internal/near"
	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/ast"
	"github.com/millrace-stream/millrace/sql/diag"
	"github.com/millrace-stream/millrace/sql/parse"
)

// unusedSetting is the warning of a SET that does nothing.
const unusedSetting = "W21"

// setting is an option of Flink in SET.
type setting struct {
	name string // a name that ends in * stands for all that begin so
	// key is the key of the configuration that it is; "" = none. convert makes its value, nil = as it is.
	key     string
	convert func(v string) (any, bool)
	// note says why it does nothing; "" and no key: the planner reads it, or nothing need be said.
	note string
}

func asDuration(v string) (any, bool) {
	d, err := row.ParseDuration(v)
	return d, err == nil && d > 0
}

func asURL(v string) (any, bool) {
	v = strings.Replace(v, "s3a://", "s3://", 1)
	return v, strings.HasPrefix(v, "s3://") || strings.HasPrefix(v, "file:///")
}

const (
	noteCommits  = "an app commits all the time: see commit.max-latency and checkpoint.interval"
	noteState    = "state lives in state.dir, see state.store"
	noteRestarts = "a subtask that fails is started again, see restart.max-attempts"
	notePlanner  = "the planner has no such choice"
	noteCluster  = "there is no cluster to configure"
)

// settings are the options of Flink that scripts set, and what they are here.
var settings = []setting{
	{name: "table.exec.state.ttl"}, {name: "table.local-time-zone"}, {name: "table.exec.emit.*"}, {name: "table.exec.source.idle-timeout"},
	{name: "table.exec.async-lookup.*"}, {name: "table.optimizer.agg-phase-strategy"},
	{name: "sql-client.*"}, {name: "execution.attached"},
	{name: "pipeline.name", key: "app.id", convert: func(v string) (any, bool) { return appName(v), true }},
	{name: "execution.checkpointing.interval", key: "checkpoint.interval", convert: asDuration},
	{name: "execution.checkpointing.min-pause", key: "checkpoint.min-pause", convert: asDuration},
	{name: "execution.checkpointing.timeout", key: "checkpoint.timeout", convert: asDuration},
	{name: "execution.checkpointing.dir", key: "checkpoint.url", convert: asURL},
	{name: "state.checkpoints.dir", key: "checkpoint.url", convert: asURL},
	{name: "execution.checkpointing.num-retained", key: "checkpoint.retain"},
	{name: "state.checkpoints.num-retained", key: "checkpoint.retain"},
	{name: "execution.checkpointing.mode", note: "results are exactly-once in any case"},
	{name: "execution.checkpointing.*", note: noteCommits},
	{name: "execution.runtime-mode", note: "queries run as streams; a table that ends, ends them"},
	{name: "execution.savepoint.path", note: "run it with --start.mode=savepoint:NAME"},
	{name: "execution.state-recovery.path", note: "run it with --start.mode=savepoint:NAME"},
	{name: "execution.*", note: noteCluster},
	{name: "parallelism.default", note: "as many subtasks run as the partitions of the topics allow; parallelism sets another number"},
	{name: "table.exec.resource.default-parallelism", note: "as many subtasks run as the partitions of the topics allow; parallelism sets another number"},
	{name: "pipeline.*", note: noteCluster},
	{name: "state.*", note: noteState},
	{name: "restart-strategy*", note: noteRestarts},
	{name: "table.exec.mini-batch.*", note: "rows are put together between two commits already"},
	{name: "table.exec.*", note: notePlanner},
	{name: "table.optimizer.*", note: notePlanner},
	{name: "table.plan.*", note: "state goes on where its operators are the same: see millrace plan diff"},
	{name: "table.dml-sync", note: "all statements of a script are one app"},
	{name: "table.*", note: notePlanner},
	{name: "taskmanager.*", note: noteCluster}, {name: "jobmanager.*", note: noteCluster}, {name: "cluster.*", note: noteCluster},
	{name: "metrics.*", note: "see docs/metrics.md"}, {name: "rest.*", note: noteCluster}, {name: "classloader.*", note: noteCluster},
	{name: "$internal.*", note: noteCluster}, {name: "s3.*", note: "see checkpoint.s3.endpoint"},
}

func findSetting(name string) *setting {
	for i := range settings {
		s := &settings[i]
		if p, ok := strings.CutSuffix(s.name, "*"); s.name == name || ok && strings.HasPrefix(name, p) {
			return s
		}
	}
	return nil
}

// hintSetting names the setting that a mistyped one may have meant.
func hintSetting(e *diag.Error, name string) {
	var names []string
	for _, s := range settings {
		if s.note == "" && !strings.HasSuffix(s.name, "*") {
			names = append(names, s.name)
		}
	}
	if n, ok := near.Word(name, names); ok {
		e.Hint = "did you mean '" + n + "'?"
	}
}

// settingsOf are the keys of the configuration that a script sets, and warnings of those that have no effect. A script with
// errors has none: who reads it tells them.
func settingsOf(path, text string, env parse.Env) (map[string]any, diag.List) {
	values := map[string]any{}
	var notes diag.List
	src := diag.NewSource(path, text)
	parsed, _ := parse.Script(src, env)
	for _, stmt := range parsed.Stmts {
		set, ok := stmt.(*ast.Set)
		if !ok || set.Key == nil {
			continue
		}
		name, value := set.Key.Value, set.Value.Value
		note := func(format string, args ...any) *diag.Error {
			e := diag.New(src, set.Span, unusedSetting, format, args...)
			notes.Add(e)
			return e
		}
		s := findSetting(name)
		switch {
		case configs.Known(name):
			values[name] = value
		case s == nil:
			hintSetting(note("'%s' is unknown: it has no effect", name), name)
		case s.note != "":
			hintSetting(note("'%s' has no effect: %s", name, s.note), name)
		case s.key == "":
		case s.convert == nil:
			values[s.key] = value
		default:
			v, ok := s.convert(value)
			if !ok {
				_ = note("'%s' = '%s' has no effect: it is no value of %s", name, value, s.key)
				continue
			}
			values[s.key] = v
		}
	}
	return values, notes
}
