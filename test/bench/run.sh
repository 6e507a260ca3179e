#!/usr/bin/env bash
# Runs the benchmark: starts a Kafka 4 broker (1 GiB heap) on 127.0.0.1:29092, fills its topics, and runs Millrace and its
# peers one after the other, so that ratios come from one run. JSON lines go to results.jsonl in the folder named by
# OUT (default: a new temporary one), tables to standard output. Needs Go, a JDK 17 and, for the peers, Maven.
#
#   test/bench/run.sh                      # throughput of all workloads: limit, millrace, streams
#   PEERS="limit millrace" WORK="w1" REPEAT=1 test/bench/run.sh
#   WHAT="tput lat failover keys" test/bench/run.sh
set -euo pipefail
cd "$(dirname "$0")"
PEERS=${PEERS:-limit millrace streams}
WORK=${WORK:-w0 w1 w2}
WHAT=${WHAT:-tput lat}
REPEAT=${REPEAT:-3}
OUT=${OUT:-$(mktemp -d)}
mkdir -p "$OUT"

(cd ../.. && go build -o test/bench/bin/ ./test/bench/...)
jars=$(cd ../.. && go run ./test/kafka/fetch | head -1)
for p in streams flink; do
  [[ " $PEERS " == *" $p "* ]] || continue
  (cd peers/$p && [ -d libs ] || mvn -q dependency:copy-dependencies -DoutputDirectory=libs)
  (cd peers/$p && mkdir -p target/classes && javac -cp 'libs/*' -d target/classes src/main/java/bench/*.java)
done

data=$(mktemp -d)
cat > "$data/server.properties" <<PROPS
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:29093
listeners=PLAINTEXT://127.0.0.1:29092,CONTROLLER://127.0.0.1:29093
controller.listener.names=CONTROLLER
log.dirs=$data/logs
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
PROPS
id=$(head -c16 /dev/urandom | base64 | tr '+/' '-_' | cut -c1-22)
java -cp "$jars/*" kafka.tools.StorageTool format -t "$id" -c "$data/server.properties" > "$data/format.log" 2>&1
java -Xmx1g -cp "$jars/*" kafka.Kafka "$data/server.properties" > "$data/broker.log" 2>&1 &
broker=$!
trap 'kill $broker; wait $broker || true; rm -rf "$data"' EXIT
for _ in $(seq 100); do (exec 3<>/dev/tcp/127.0.0.1/29092) 2>/dev/null && break; sleep 0.2; done

export BROKERS=127.0.0.1:29092
bin/gen
[[ " $WHAT " == *" keys "* ]] && bin/gen -topic events1m -users 1000000 -distinct -flush=false

command_of() {
  case $1 in
    limit) echo bin/limit ;;
    millrace) echo bin/job ;;
    streams) echo "java -Xmx2g -cp peers/streams/libs/*:peers/streams/target/classes bench.StreamsApp" ;;
    flink) echo "java -Xmx2g @peers/flink/opens -cp peers/flink/libs/*:peers/flink/target/classes bench.FlinkApp" ;;
  esac
}
measure() { # kind, peer, workload, more flags
  local kind=$1 peer=$2 w=$3
  shift 3
  [ "$peer" = limit ] && [ "$w" = w2 ] && return
  set -f
  # shellcheck disable=SC2046 # the command's words
  bin/runner "$kind" -name "$peer" -w "$w" -repeat "$REPEAT" "$@" -- $(command_of "$peer") | tee -a "$OUT/results.jsonl" | { grep MEDIAN || true; }
  set +f
}
for w in $WORK; do
  for p in $PEERS; do
    [[ " $WHAT " == *" tput "* ]] && measure tput "$p" "$w"
    [[ " $WHAT " == *" lat "* ]] && [ "$w" = w1 ] && measure lat "$p" w1 -commit 100
    [[ " $WHAT " == *" failover "* ]] && [ "$w" = w1 ] && measure failover "$p" w1 -session 6000
    [[ " $WHAT " == *" keys "* ]] && [ "$w" = w1 ] && measure tput "$p" w1 -in events1m -users 1000000 -distinct
  done
done
echo "JSON lines: $OUT/results.jsonl"
