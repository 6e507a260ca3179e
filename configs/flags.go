package configs

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"
)

// flagValue keeps the text of a flag; it is read with the other layers. It serves pflag and viper, to whom it is plain
// text of whatever kind, so that neither converts it.
type flagValue struct {
	key     key
	text    string
	changed bool
}

// String is the text as given.
func (v *flagValue) String() string { return v.text }

// Set takes a text. A list that is given twice grows, as do those of pflag.
func (v *flagValue) Set(s string) error {
	if v.changed && v.key.list() {
		s = v.text + "," + s
	}
	v.text, v.changed = s, true
	return nil
}

// Type is shown in usage texts.
func (v *flagValue) Type() string { return v.key.kind() }

// HasChanged, Name, ValueString and ValueType make a viper.FlagValue.
func (v *flagValue) HasChanged() bool { return v.changed }

// Name of the flag.
func (v *flagValue) Name() string { return v.key.name }

// ValueString is the text as given.
func (v *flagValue) ValueString() string { return v.text }

// ValueType is one that viper does not convert.
func (v *flagValue) ValueType() string { return "text" }

// shortFlags are other names of flags, for what is typed by hand now and then.
var shortFlags = map[string]string{"allow-dropped-state": "start.allow-dropped-state"}

// flags is what the command line said.
type flags struct {
	values     map[string]*flagValue
	config     string
	configured bool     // --config was given
	args       []string // behind the flags
}

// readFlags parses our flags and those of the program together. The error is pflag.ErrHelp for --help.
func readFlags(args []string, extra *pflag.FlagSet) (flags, []Fault, error) {
	out := flags{values: map[string]*flagValue{}}
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {} // the caller prints Usage
	fs.SortFlags = false
	fs.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if full, ok := shortFlags[name]; ok {
			name = full
		}
		return pflag.NormalizedName(name)
	})
	fs.StringVar(&out.config, configFlag, "", "")
	for _, k := range keys() {
		v := &flagValue{key: k}
		out.values[k.name] = v
		if fs.VarPF(v, k.name, "", k.doc); k.kind() == "bool" {
			fs.Lookup(k.name).NoOptDefVal = "true"
		}
	}
	var list []Fault
	if extra != nil {
		extra.VisitAll(func(f *pflag.Flag) {
			if fs.Lookup(f.Name) != nil {
				list = append(list, Fault{Key: "--" + f.Name, Problem: "the program defines a flag with the name of a key: rename it"})
			}
		})
		if len(list) > 0 {
			return out, list, nil
		}
		fs.AddFlagSet(extra)
	}
	known, list := onlyKnown(fs, args)
	err := fs.ParseAll(known, func(f *pflag.Flag, value string) error {
		if err := fs.Set(f.Name, value); err != nil { // of the program's own flags only: ours take any text
			list = append(list, Fault{Key: "--" + f.Name, Origin: "flag", Problem: err.Error()})
		}
		return nil
	})
	if errors.Is(err, pflag.ErrHelp) {
		return out, nil, err
	}
	if err != nil {
		list = append(list, Fault{Origin: "flags", Problem: err.Error()})
	}
	out.configured = fs.Changed(configFlag)
	out.args = fs.Args()
	return out, list, nil
}

// onlyKnown takes the unknown flags out of args, a fault for each, since pflag stops at the first. Faults show no
// values: a misspelt flag may carry a secret.
func onlyKnown(fs *pflag.FlagSet, args []string) (known []string, list []Fault) {
	var names []string
	fs.VisitAll(func(f *pflag.Flag) { names = append(names, "--"+f.Name) })
	for i := 0; i < len(args); i++ {
		arg := args[i]
		name, _, withValue := strings.Cut(arg, "=")
		var f *pflag.Flag
		switch {
		case arg == "--":
			return append(known, args[i:]...), list
		case len(arg) < 2 || arg[0] != '-', arg == "--help", arg == "-h":
			known = append(known, arg)
			continue
		case strings.HasPrefix(arg, "--"):
			f = fs.Lookup(name[2:])
		case fs.Lookup(name[1:]) == nil:
			// The last of several letters may take the next argument. pflag reads the letters.
			f = fs.ShorthandLookup(arg[1:2])
			withValue = withValue || len(arg) > 2
		}
		if f == nil {
			list = append(list, Fault{Key: name, Origin: "flag", Problem: "unknown flag" + suggest(name, names)})
			continue
		}
		known = append(known, arg)
		if f.NoOptDefVal == "" && !withValue && i+1 < len(args) {
			i++
			known = append(known, args[i])
		}
	}
	return known, list
}

// Usage is the help text of a program: its own flags, then every key by group. program may have more words, such as
// "millrace config".
func Usage(program string, extra *pflag.FlagSet) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Usage: %s [flags]\n", program)
	if extra != nil && extra.HasAvailableFlags() {
		fmt.Fprintf(&b, "\nFlags:\n%s", extra.FlagUsagesWrapped(100))
	}
	b.WriteString("\nConfiguration: defaults, then the YAML file, then MILLRACE_* variables, then flags; the last one wins.\n" +
		"The variable of a key is its name in capitals: commit.max-latency is MILLRACE_COMMIT_MAX_LATENCY.\n" +
		"Secrets also come from a file: MILLRACE_SECURITY_SASL_PASSWORD_FILE.\n\n" +
		"  --config file\n      YAML file; also MILLRACE_CONFIG\n")
	for _, g := range table {
		fmt.Fprintf(&b, "\n%s:\n", g.title)
		for _, k := range g.keys {
			fmt.Fprintf(&b, "  --%s %s", k.name, k.kind())
			if k.def != "" {
				fmt.Fprintf(&b, " (default %s)", k.def)
			}
			b.WriteByte('\n')
			doc := k.doc
			if k.oneOf != nil {
				doc += " Allowed: " + orList(k.oneOf) + "."
			}
			for _, line := range wrap(doc, 90) {
				fmt.Fprintf(&b, "      %s\n", line)
			}
		}
	}
	return b.String()
}

// wrap breaks a text at spaces.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}
