package shell

import (
	"context"
	"errors"
	"io"
	"strings"

	"github.com/reeflective/readline"

	"github.com/millrace-stream/millrace/sql/parse"
)

// Interactive reads statements from the terminal of the process until the user leaves or ctx is done. Errors of statements
// are told and do not end it. history is the file that statements are remembered in; "" = they are not.
func (s *Shell) Interactive(ctx context.Context, history string) error {
	rl := readline.NewShell()
	rl.Prompt.Primary(func() string { return "millrace> " })
	rl.Prompt.Secondary(func() string { return "      ...> " })
	rl.AcceptMultiline = func(line []rune) bool {
		text := string(line)
		return IsCommand(text) || strings.TrimSpace(text) == "" || parse.Complete(text)
	}
	rl.SyntaxHighlighter = func(line []rune) string { return highlight(string(line)) }
	rl.Completer = func(line []rune, cursor int) readline.Completions {
		list, _ := s.Complete(string(line[:cursor]))
		var values []string
		for _, c := range list {
			values = append(values, c.Text, c.What)
		}
		return readline.CompleteValuesDescribed(values...).NoSort()
	}
	if history != "" {
		rl.History.AddFromFile("statements", history)
	}
	for ctx.Err() == nil && !s.quit {
		text, err := rl.Readline()
		switch {
		case errors.Is(err, readline.ErrInterrupt):
			continue
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		switch {
		case strings.TrimSpace(text) == "":
		case IsCommand(text):
			err = s.Command(ctx, text)
		default:
			err = s.Script(ctx, "input", text)
		}
		if err != nil && !errors.Is(err, ErrStatement) {
			return err
		}
	}
	return nil
}

// highlight sets keywords, texts and numbers apart.
func highlight(text string) string {
	const keyword, str, number = "\x1b[1m", "\x1b[32m", "\x1b[36m"
	var b strings.Builder
	last := 0
	for _, t := range parse.Tokens(text) {
		style := map[parse.Class]string{parse.Keyword: keyword, parse.String: str, parse.Number: number}[t.Class]
		if style == "" {
			continue
		}
		b.WriteString(text[last:t.Start])
		b.WriteString(style + text[t.Start:t.End] + plain)
		last = t.End
	}
	return b.String() + text[last:]
}
