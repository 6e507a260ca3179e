package configs

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"github.com/spf13/viper"
)

// LoadOptions says where a configuration comes from. Nothing is taken from the process itself.
type LoadOptions struct {
	Args    []string // the command line without the program's name: os.Args[1:]
	Environ []string // "K=V": os.Environ()
	// File is the YAML file unless --config or MILLRACE_CONFIG name another; "" = none.
	File string
	// Flags are the program's own, parsed together with ours. Those of the standard flag package come in by
	// AddGoFlagSet. Their values are set when Load returns without error.
	Flags *pflag.FlagSet
	// Defaults are the program's own by key, for example app.id. Values are texts as in the file, or of the Go type
	// of the key.
	Defaults map[string]any
}

// Loaded is a configuration that has passed all checks.
type Loaded struct {
	Config Config
	Args   []string // what stood behind the flags
	// origins by key; those that are not there are defaults.
	origins map[string]string
}

const (
	originDefault = "default"
	originProgram = "program"
)

// Origin says where the value of a key came from: "default", "program" (LoadOptions.Defaults), "file x.yaml:12",
// "environment MILLRACE_APP_ID" or "flag --app.id".
func (l *Loaded) Origin(key string) string {
	if o, ok := l.origins[key]; ok {
		return o
	}
	return originDefault
}

// Load reads all layers and checks the result. The error is *Faults with everything that is wrong, or pflag.ErrHelp if
// the command line asks for help: then print Usage.
func Load(o LoadOptions) (*Loaded, error) {
	l, bad, list, err := resolve(o)
	if err != nil {
		return nil, err
	}
	list = append(list, l.Config.faults(bad, l.Origin)...)
	if err := faults(list); err != nil {
		return nil, err
	}
	return l, nil
}

// resolve takes each value from the strongest layer that has it. Keys whose value does not have the form of its kind
// are in bad; list has a fault for each of them and for all that the layers hold and nobody knows.
func resolve(o LoadOptions) (l *Loaded, bad map[string]bool, list []Fault, err error) {
	cmdline, list, err := readFlags(o.Args, o.Flags)
	if err != nil {
		return nil, nil, nil, err
	}
	env, path, envFaults := readEnv(o.Environ)
	switch {
	case cmdline.configured:
		path = cmdline.config
	case path == "":
		path = o.File
	}
	var file map[string]given
	if path != "" {
		var fileFaults []Fault
		file, fileFaults = readFile(path)
		list = append(fileFaults, list...)
	}
	list = append(list, envFaults...)

	v := viper.New()
	l = &Loaded{Args: cmdline.args, origins: map[string]string{}}
	for _, k := range keys() {
		v.SetDefault(k.name, k.def)
	}
	for name, value := range o.Defaults {
		k, ok := find(name)
		if !ok {
			list = append(list, Fault{Key: name, Origin: originProgram, Problem: "unknown key" + suggest(name, keyNames())})
			continue
		}
		v.SetDefault(k.name, ownDefault(value))
		l.origins[name] = originProgram
	}
	// The environment is merged over the file, flags are bound: viper puts them above both, and all above defaults.
	for _, layer := range []map[string]given{file, env} {
		if err := v.MergeConfigMap(nested(layer)); err != nil {
			return nil, nil, nil, fmt.Errorf("merge the layers of the configuration: %w", err)
		}
		for name, value := range layer {
			l.origins[name] = value.origin
		}
	}
	for name, value := range cmdline.values {
		if err := v.BindFlagValue(name, value); err != nil {
			return nil, nil, nil, fmt.Errorf("bind flag --%s: %w", name, err)
		}
		if value.changed {
			l.origins[name] = "flag --" + name
		}
	}

	bad = map[string]bool{}
	for _, k := range keys() {
		value := v.Get(k.name)
		if err := set(k.at(&l.Config), value); err != nil {
			bad[k.name] = true
			list = append(list, Fault{Key: k.name, Value: shown(k, fmt.Sprint(value)), Origin: l.Origin(k.name), Problem: err.Error()})
		}
	}
	return l, bad, list, nil
}

// ownDefault brings a value of a program into the form of the other layers.
func ownDefault(value any) any {
	switch v := value.(type) {
	case []string:
		return v
	case time.Duration:
		return FormatDuration(v)
	case Secret:
		return v.Reveal()
	default:
		return fmt.Sprint(v)
	}
}

// nested turns keys with dots into the sections that viper wants.
func nested(layer map[string]given) map[string]any {
	top := map[string]any{}
	for name, value := range layer {
		section := top
		parts := strings.Split(name, ".")
		for _, part := range parts[:len(parts)-1] {
			below, ok := section[part].(map[string]any)
			if !ok {
				below = map[string]any{}
				section[part] = below
			}
			section = below
		}
		section[parts[len(parts)-1]] = value.value
	}
	return top
}
