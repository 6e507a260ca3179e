#!/bin/sh
# Asks the automaton of Flink's CEP library what the cases on the standard input match; see internal/nfa/golden_test.go:
#   test/cepgolden/run.sh < cases > answers
# It needs Java 17 and Maven.
set -e
cd "$(dirname "$0")"
if [ ! -f target/cp.txt ] || [ src/main/java/cepgolden/Main.java -nt target/cp.txt ]; then
	mvn -q -B compile dependency:build-classpath -Dmdep.outputFile=target/cp.txt >&2
fi
exec java -cp "target/classes:$(cat target/cp.txt)" cepgolden.Main
