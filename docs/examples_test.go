package docs

import (
	"go/ast"
	"strings"
	"testing"
)

// without are the functions of package processor that have no Example of their own, and the one that shows them. "" = none does
// yet: take those off as soon as one does.
var without = map[string]string{
	"New": "Example_options", "NewOutputTag": "ExampleSideOutput", "At": "Example_options",
	"Name": "Example_options", "OnError": "ExampleTryMap", "Parallelism": "Example_options", "MaxRecordBytes": "Example_options", "StateTTL": "Example_options",
	"Count": "Example_aggregators", "Sum": "ExampleAggregate", "Min": "ExampleRunningAggregate", "Max": "ExampleRunningAggregate",
	"Avg": "Example_aggregators", "Both": "Example_aggregators", "TopN": "Example_aggregators", "Distinct": "Example_aggregators",
	"MinBy": "Example_aggregators", "MaxBy": "Example_aggregators", "Variance": "Example_aggregators", "Only": "Example_aggregators",
	"Value": "ExampleProcess", "Lookup": "ExampleBroadcast", "BroadcastState": "ExampleProcessBroadcast", "EachKey": "ExampleProcessBroadcast",
	"JoinGlobal": "ExampleGlobalTableFrom", "WindowValue": "ExampleProcessWindow", "HeaderTime": "ExampleAssignEventTime",
	"TableFrom": "ExampleLeftJoinTable", "JoinTable": "", "LateRightTo": "", "LateLeftTo": "", "RFC3339": "", // as LateRightTo, and as the other forms of HeaderTime
	// The low-level contract: what is for engines on top of it.
	"FromRaw": "ExampleTransform", "ToRaw": "ExampleTransform", "ToExternal": "", "ExchangeBy": "", "KeyGroup": "",
	"Generate": "", "Retime": "", "Shared": "", "OnStep": "", "OnUndo": "", "AsyncPairs": "", "Now": "", "SubtaskOf": "",
	"EndAt": "Example_bounded", "EndOffsets": "Example_bounded", "EndCommitted": "Example_bounded", "Offsets": "Example_bounded", "Committed": "Example_bounded",
	"DetectMatches": "", // package cep calls it
}

// TestEveryFunctionHasAnExample: who reads the documentation of an operator finds how it is used.
func TestEveryFunctionHasAnExample(t *testing.T) {
	functions := map[string]bool{}
	calls := map[string]map[string]bool{} // by example
	for name, file := range parse(t, "../processor") {
		test := strings.HasSuffix(name, "_test.go")
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv != nil {
				continue
			}
			switch {
			case !test && f.Name.IsExported():
				functions[f.Name.Name] = true
			case test && strings.HasPrefix(f.Name.Name, "Example"):
				called := map[string]bool{}
				ast.Inspect(f, func(n ast.Node) bool {
					if s, ok := n.(*ast.SelectorExpr); ok {
						if x, ok := s.X.(*ast.Ident); ok && x.Name == "processor" {
							called[s.Sel.Name] = true
						}
					}
					return true
				})
				calls[f.Name.Name] = called
			}
		}
	}
	for name := range functions {
		_, has := calls["Example"+name]
		shown, excepted := without[name]
		switch {
		case has && shown != "":
			t.Errorf("%s has an Example: take it off the list", name)
		case has && excepted:
			t.Logf("%s has an Example: take it off the list", name)
		case !has && !excepted:
			t.Errorf("%s has no Example", name)
		case excepted && shown != "" && !calls[shown][name]:
			t.Errorf("%s does not use %s", shown, name)
		}
	}
	for name := range without {
		if !functions[name] {
			t.Errorf("there is no function %s", name)
		}
	}
	if !functions["KeyBy"] || !calls["ExampleKeyBy"]["KeyBy"] {
		t.Error("the test does not see KeyBy and its Example")
	}
}
