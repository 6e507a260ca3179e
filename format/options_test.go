package format_test

import (
	"strings"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/format"
)

var specs = []format.Option{
	{Name: "topic", Kind: format.List, Required: true, Doc: "The topics."},
	{Name: "size", Kind: format.Integer, Default: "7"},
	{Name: "wait", Kind: format.Duration, Default: "10 s"},
	{Name: "strict", Kind: format.Boolean, Default: "false"},
	{Name: "mode", Kind: format.Enum, Values: []string{"earliest-offset", "latest-offset"}, Default: "latest-offset"},
	{Name: "headers", Kind: format.Map},
	{Name: "properties.*", Doc: "Properties of the client."},
}

func TestOptionsAreRead(t *testing.T) {
	o, err := format.ReadOptions("x.", map[string]string{"x.topic": "a; b", "other": "1", "x.mode": "EARLIEST-offset", "x.headers": "a:1, b:2", "x.properties.acks": "all", "x.strict": "TRUE"}, specs)
	if err != nil {
		t.Fatal(err)
	}
	if l := o.List("topic"); len(l) != 2 || l[0] != "a" || l[1] != "b" {
		t.Errorf("List = %q", l)
	}
	if o.Int("size") != 7 || o.Duration("wait") != 10*time.Second || !o.Bool("strict") || o.Text("mode") != "earliest-offset" {
		t.Errorf("%d %s %v %s", o.Int("size"), o.Duration("wait"), o.Bool("strict"), o.Text("mode"))
	}
	if m := o.Map("headers"); len(m) != 2 || m["b"] != "2" {
		t.Errorf("Map = %v", m)
	}
	if m := o.Prefixed("properties."); len(m) != 1 || m["acks"] != "all" {
		t.Errorf("Prefixed = %v", m)
	}
	if !o.Has("topic") || o.Has("size") {
		t.Error("Has")
	}
}

func TestOptionsThatAreWrong(t *testing.T) {
	for name, c := range map[string]struct {
		values map[string]string
		want   string
	}{
		"missing":  {map[string]string{}, "option 'topic' is missing: The topics."},
		"unknown":  {map[string]string{"topic": "a", "sise": "1"}, "option 'sise' is unknown; did you mean 'size'?"},
		"strange":  {map[string]string{"topic": "a", "zzzzzzzz": "1"}, "there are: topic, size"},
		"number":   {map[string]string{"topic": "a", "size": "x"}, "option 'size' = 'x': must be a whole number"},
		"bool":     {map[string]string{"topic": "a", "strict": "yes"}, "must be 'true' or 'false'"},
		"duration": {map[string]string{"topic": "a", "wait": "10 years"}, "ms, s, min, h or d"},
		"enum":     {map[string]string{"topic": "a", "mode": "now"}, "must be one of earliest-offset, latest-offset"},
		"map":      {map[string]string{"topic": "a", "headers": "a"}, "key:value"},
		"prefix":   {map[string]string{"topic": "a", "properties.": "a"}, "is unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := format.ReadOptions("", c.values, specs)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("ReadOptions = %v, want %q in it", err, c.want)
			}
		})
	}
}
