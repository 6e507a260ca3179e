package cli

import (
	"bytes"
	"strings"
	"testing"
)

func TestRescaleNeedsANumber(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"rescale", "--app.id=orders"}, "--subtasks is 0"},
		{[]string{"rescale", "--app.id=orders", "--subtasks=-1"}, "--subtasks is -1"},
		{[]string{"rescale", "--subtasks=2"}, "app.id is not set"},
		{[]string{"rescale", "--app.id=orders", "--subtasks=2"}, "checkpoint.url is not set"},
	} {
		var out, errOut bytes.Buffer
		if code := Run(t.Context(), Options{}, c.args, nil, &out, &errOut); code != exitUsage || !strings.Contains(errOut.String(), c.want) {
			t.Errorf("%v: exit code %d, %q, want %q", c.args, code, errOut.String(), c.want)
		}
	}
}

func TestRescaleShowsWhatItDoes(t *testing.T) {
	r := rescaleResult{Subs: []rescaleSub{
		{ID: 0, Inputs: []string{"orders (12 partitions)"}, Now: 4, Then: 6},
		{ID: 1, Inputs: []string{"by-user (12 partitions)", "users (8 partitions)"}, Stores: 2, Now: 4, Then: 6, Refused: true, Why: "6 does not divide 8"},
		{ID: 2, Inputs: []string{"by-day (1 partitions)"}, Stores: 1, Now: 1, Then: 1, Why: "the program names the number itself"},
	}}
	var out bytes.Buffer
	if err := r.write(&out); err != nil {
		t.Fatal(err)
	}
	const want = `SUB-TOPOLOGY  INPUTS                                          STATES  SUBTASKS NOW  THEN  
0             orders (12 partitions)                          0       4             6     
1             by-user (12 partitions), users (8 partitions)  2       4             -     refused: 6 does not divide 8
2             by-day (1 partitions)                           1       1             1     the program names the number itself
`
	squeeze := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	if squeeze(out.String()) != squeeze(want) {
		t.Errorf("it shows\n%s", out.String())
	}
}
