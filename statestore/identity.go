package statestore

import (
	"fmt"
	"slices"
	"strings"
)

// Diff says in words how other differs from id, for errors of Dir.Open; it is empty if they are equal. id is what the
// store was made with, other what is asked for.
func (id Identity) Diff(other Identity) string {
	var d []string
	add := func(what string, have, want any) {
		d = append(d, fmt.Sprintf("%s is %v, wanted %v", what, have, want))
	}
	if id.App != other.App {
		add("app id", quoted(id.App), quoted(other.App))
	}
	if id.ClusterID != other.ClusterID {
		add("cluster id", quoted(id.ClusterID), quoted(other.ClusterID))
	}
	if id.Incarnation != other.Incarnation {
		add("incarnation", id.Incarnation, other.Incarnation)
	}
	if id.Subtask != other.Subtask {
		add("subtask", quoted(id.Subtask), quoted(other.Subtask))
	}
	if !slices.Equal(id.Changelogs, other.Changelogs) {
		add("topic ids of its changelogs", "["+strings.Join(id.Changelogs, " ")+"]", "["+strings.Join(other.Changelogs, " ")+"]")
	}
	return strings.Join(d, "; ")
}

func quoted(s string) string { return fmt.Sprintf("%q", s) }
