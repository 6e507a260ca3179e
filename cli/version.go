package cli

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// versionInfo is what `millrace version` prints.
type versionInfo struct {
	Version  string `json:"version"`
	Commit   string `json:"commit"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func newVersionCommand(o *Options) *cobra.Command {
	var form string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			build, _ := debug.ReadBuildInfo()
			v := buildVersion(o.Version, o.Commit, build)
			switch form {
			case "text":
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "millrace %s (commit %s, %s, %s)\n", v.Version, v.Commit, v.Go, v.Platform)
				return err
			case "json":
				return json.NewEncoder(cmd.OutOrStdout()).Encode(v)
			default:
				return usageError{fmt.Errorf("unknown output %q: text or json is wanted", form)}
			}
		},
	}
	cmd.Flags().StringVarP(&form, "output", "o", "text", "form of the output: text or json")
	return cmd
}

// buildVersion takes what the linker set, then what the go command knows. build may be nil.
func buildVersion(version, commit string, build *debug.BuildInfo) versionInfo {
	v := versionInfo{Version: version, Commit: commit, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if build != nil {
		if v.Version == "" {
			v.Version = build.Main.Version
		}
		dirty := ""
		for _, s := range build.Settings {
			switch {
			case s.Key == "vcs.revision" && v.Commit == "":
				v.Commit = s.Value[:min(12, len(s.Value))]
			case s.Key == "vcs.modified" && s.Value == "true" && commit == "":
				dirty = "-dirty"
			}
		}
		if v.Commit != "" {
			v.Commit += dirty
		}
	}
	if v.Version == "" {
		v.Version = "(devel)"
	}
	if v.Commit == "" {
		v.Commit = "unknown"
	}
	return v
}
