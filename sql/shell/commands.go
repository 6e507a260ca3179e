package shell

import (
	"context"
	"fmt"
	"strings"
)

// command is a command of the shell itself: a backslash and a word.
type command struct {
	names []string // the first one is shown
	args  string
	doc   string
	run   func(ctx context.Context, s *Shell, arg string) error
}

// commands are all of them, as help shows them.
func commands() []command {
	sql := func(text string) func(context.Context, *Shell, string) error {
		return func(ctx context.Context, s *Shell, _ string) error { return s.Script(ctx, "command", text) }
	}
	return []command{
		{[]string{`\?`, `\h`, `\help`}, "", "this list", func(_ context.Context, s *Shell, _ string) error { return s.help() }},
		{[]string{`\q`, `\quit`, `\exit`}, "", "leave the shell", func(_ context.Context, s *Shell, _ string) error { s.quit = true; return nil }},
		{[]string{`\d`}, "[NAME]", "tables and views, or the columns of one", func(ctx context.Context, s *Shell, arg string) error {
			if arg == "" {
				return s.Script(ctx, "command", "SHOW TABLES;")
			}
			return s.Script(ctx, "command", "DESCRIBE "+strings.TrimSuffix(arg, ";")+";")
		}},
		{[]string{`\sql`}, "NAME", "the statement that creates a table", func(ctx context.Context, s *Shell, arg string) error {
			return s.Script(ctx, "command", "SHOW CREATE TABLE "+strings.TrimSuffix(arg, ";")+";")
		}},
		{[]string{`\df`}, "", "functions", sql("SHOW FUNCTIONS;")},
		{[]string{`\set`}, "", "settings", sql("SET;")},
		{[]string{`\mode`}, "table|changelog|tableau", "how a result is shown", func(ctx context.Context, s *Shell, arg string) error {
			return s.setting(ctx, resultMode, arg, "table, changelog or tableau")
		}},
		{[]string{`\batch`}, "on|off", "whether a query ends where its topics end now", func(ctx context.Context, s *Shell, arg string) error {
			return s.setting(ctx, runMode, map[string]string{"on": "batch", "off": "streaming"}[arg], "on or off")
		}},
		{[]string{`\i`}, "FILE", "carry out the statements of a file", func(ctx context.Context, s *Shell, arg string) error { return s.File(ctx, arg) }},
		{[]string{`\timing`}, "", "tell how long statements take, or do not", func(_ context.Context, s *Shell, _ string) error {
			s.timing = !s.timing
			s.say("timing is %s", map[bool]string{true: "on", false: "off"}[s.timing])
			return nil
		}},
	}
}

// IsCommand says whether a line is a command of the shell, which needs no semicolon.
func IsCommand(line string) bool { return strings.HasPrefix(strings.TrimSpace(line), `\`) }

// Command carries out a command of the shell.
func (s *Shell) Command(ctx context.Context, line string) error {
	name, arg, _ := strings.Cut(strings.TrimSpace(line), " ")
	for _, c := range commands() {
		for _, n := range c.names {
			if n == name {
				return c.run(ctx, s, strings.TrimSpace(arg))
			}
		}
	}
	s.say(`error: there is no command %s; \? lists them`, name)
	return ErrStatement
}

func (s *Shell) help() error {
	var b strings.Builder
	b.WriteString("A statement ends with ; and may have several lines. Ctrl-C stops a statement, Ctrl-D leaves.\n")
	for _, c := range commands() {
		fmt.Fprintf(&b, "  %-32s %s\n", strings.TrimSpace(c.names[0]+" "+c.args), c.doc)
	}
	s.say("%s", strings.TrimSuffix(b.String(), "\n"))
	return nil
}

// setting sets a setting to a value that may not be empty.
func (s *Shell) setting(ctx context.Context, name, value, wanted string) error {
	if value == "" {
		s.say("error: %s is wanted", wanted)
		return ErrStatement
	}
	return s.Script(ctx, "command", fmt.Sprintf("SET '%s' = '%s';", name, strings.ReplaceAll(value, "'", "''")))
}
