#!/usr/bin/env bash
# Runs the benchmark: starts a Kafka 4 broker (1 GiB heap) on 127.0.0.1:29092, fills its topics, and runs Millrace and its
# peers one after the other, so that ratios come from one run. JSON lines go to results.jsonl and logs to run/ in the
# folder OUT (default: a new temporary one), tables to standard output. Needs Go, a JDK 17, Python 3 and, for the peers,
# Maven. Nothing else should run on the machine.
#
#   test/bench/run.sh                                 # all but keys10m, restore10m, nexmark and the large checkpoints
#   WHAT="tput" PEERS="limit millrace" WORK="w1" REPEAT=1 test/bench/run.sh
#
# WHAT, any of (times on 2 cores, with the default peers):
#   tput        records per second and CPU-second, memory: limit millrace streams flink-heap flink-rocksdb   17 min
#   start       process start to the first committed output: limit millrace streams                           1 min
#   lat         latency, CPU and memory at 5,000 records/s, default commit interval: limit millrace streams   3 min
#   failover    kill -9 of one of two members, session 6 s: millrace streams                                  3 min
#   restart     kill -9 and started again at once with its state: millrace streams                            2 min
#   keys        W1 with 1,000,000 keys against 10,000: millrace                                               2 min
#   keys10m     updates of 10,000,000 keys, drawn evenly, against 100,000, memory.limit 1 GiB: millrace         4 min
#   restore     first new output after kill -9 with 1,000,000 keys, state kept, from a checkpoint, from the
#               changelog: millrace streams                                                                   4 min
#   restore10m  the same with 10,000,000 keys of 200 bytes, checkpoint and changelog: millrace streams       20 min
#   grow        W1 and W2 against GROW (partitions members keys size): millrace                               9 min
#   nexmark     the auction benchmark, one SQL script for all: millrace flink-heap flink-rocksdb             30 min
#
# PEERS and WORK (w0 w1 w2) narrow them, or widen them to other peers (command_of; millrace-gogc100 is GOGC=100). tput also has the workloads of event time
# (WORK="hop session join cep"), with 2,000,000 records or as many as HOP_N, SESSION_N, JOIN_N (both topics together) and CEP_N say; limit has none of them, Streams no cep.
# nexmark runs QUERIES (all that nexmark/ has) on NEXMARK_N (600,000) events, those that are cheap on CHEAP_N (2,000,000), CEP queries on MATCH_N (100,000),
# in a topic of two partitions, once, since it has many runs (NEXMARK_REPEAT); flink-heap-batch is Flink with mini-batches.
# REPEAT (3) is repetitions of tput, start, keys and restore, PEER_REPEAT (REPEAT) those of tput for all but Millrace and limit, LIVE_REPEAT (1) of lat, failover and restart, GROW_REPEAT (1) of grow. SCALE=0.01 makes 1 % of the records,
# (of restore10m the keys too), and DUR=8s short live runs, to see whether all works. Millrace's checkpoints go to a local
# folder, or with S3_SERVER, the path of a versitygw binary, to that server on the same disk:
#
#   S3_SERVER=$(go run ./test/s3/fetch) WHAT=restore test/bench/run.sh
set -euo pipefail
cd "$(dirname "$0")"
WHAT=${WHAT:-tput start lat failover restart keys restore grow}
WORK=${WORK:-w0 w1 w2}
REPEAT=${REPEAT:-3} PEER_REPEAT=${PEER_REPEAT:-${REPEAT:-3}} LIVE_REPEAT=${LIVE_REPEAT:-1} GROW_REPEAT=${GROW_REPEAT:-1}
GROW=${GROW:-partitions members keys size}
SCALE=${SCALE:-1} DUR=${DUR:-30s}
OUT=$(realpath "${OUT:-$(mktemp -d)}")
mkdir -p "$OUT/run"
: > "$OUT/results.jsonl"

for word in $WHAT; do
  case $word in
    tput | start | lat | failover | restart | keys | keys10m | restore | restore10m | grow | nexmark) ;;
    *) echo "run.sh: WHAT has \"$word\"; see the head of this file" >&2; exit 2 ;;
  esac
done
doing() { [[ " $WHAT " == *" $1 "* ]]; }
# peers DEFAULT...: PEERS if it is set, or the default ones.
peers() { echo "${PEERS:-$*}"; }
all=$(peers limit millrace streams flink-heap flink-rocksdb)

(cd ../.. && go build -o test/bench/bin/ ./test/bench/{gen,job,limit,probe,runner,verify} ./cmd/millrace)
jars=$(cd ../.. && go run ./test/kafka/fetch | sed -n 1p)
for p in streams flink; do
  if [[ " $all " != *" $p"* ]]; then continue; fi
  if [ "$p" = flink ] && ! doing tput && ! doing nexmark && [ -z "${PEERS:-}" ]; then continue; fi
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
log.segment.delete.delay.ms=5000
PROPS
id=$(head -c16 /dev/urandom | base64 | tr '+/' '-_' | cut -c1-22)
java -cp "$jars/*" kafka.tools.StorageTool format -t "$id" -c "$data/server.properties" > "$data/format.log" 2>&1
java -Xmx1g -cp "$jars/*" kafka.Kafka "$data/server.properties" > "$OUT/run/broker.log" 2>&1 &
broker=$!
s3=
trap 'kill $broker $s3; wait $broker || true; rm -rf "$data"' EXIT
for _ in $(seq 100); do (exec 3<>/dev/tcp/127.0.0.1/29092) 2>/dev/null && break; sleep 0.2; done
export BROKERS=127.0.0.1:29092

command_of() {
  case $1 in
    limit) echo bin/limit ;;
    millrace-gogc*) echo "env GOGC=${1#millrace-gogc} bin/job" ;;
    millrace) echo bin/job ;;
    streams) echo "java -Xmx2g -cp peers/streams/libs/*:peers/streams/target/classes bench.StreamsApp" ;;
    streams-suppress) echo "env VARIANT=s $(command_of streams)" ;;
    streams-retention) echo "env VARIANT=r $(command_of streams)" ;;
    streams-cache) echo "env VARIANT=c $(command_of streams)" ;;
    streams-txstores) echo "env TX_STORES=true $(command_of streams)" ;;
    flink-heap) echo "env BACKEND=hashmap $(command_of flink-rocksdb)" ;;
    flink-rocksdb) echo "java -Xmx2g @peers/flink/opens -cp peers/flink/libs/*:peers/flink/target/classes bench.FlinkApp" ;;
    *) echo "run.sh: no peer $1" >&2; exit 2 ;;
  esac
}
# sql_command_of PEER: the command that runs the script whose path is put behind it.
sql_command_of() {
  case $1 in
    millrace-gogc*) echo "env GOGC=${1#millrace-gogc} bin/millrace run" ;;
    millrace) echo "bin/millrace run" ;;
    flink-*-batch) echo "env MINI_BATCH_MS=1000 $(sql_command_of "${1%-batch}")" ;;
    flink-heap) echo "env BACKEND=hashmap $(sql_command_of flink-rocksdb)" ;;
    flink-rocksdb) echo "java -Xmx2g @peers/flink/opens -cp peers/flink/libs/*:peers/flink/target/classes bench.SqlApp" ;;
    *) echo "run.sh: no peer $1 of nexmark" >&2; exit 2 ;;
  esac
}
failed=0
# measure KIND PEER WORKLOAD FLAGS...: one peer under one measurement; a wrong or failed one does not stop the others.
measure() {
  local kind=$1 peer=$2 w=$3 command
  shift 3
  case "$peer-$w" in # limit has no windows, Streams no patterns; queries without state are the same on both backends of Flink
    limit-w[01]) ;;
    limit-* | streams*-cep | flink-rocksdb*-q[012] | flink-rocksdb*-q22) return ;;
  esac
  if [ "$kind" = sql ]; then command=$(sql_command_of "$peer"); else command=$(command_of "$peer"); fi
  echo "-- $(date +%H:%M:%S) $kind $peer $w $*" >&2
  set -f
  # shellcheck disable=SC2086 # the command's words
  bin/runner "$kind" -name "$peer" -w "$w" -tmp "$OUT/run" "$@" -- $command | tee -a "$OUT/results.jsonl" | { grep MEDIAN || true; } || failed=1
  set +f
}
records() { awk -v n="$1" -v s="$SCALE" 'BEGIN { printf "%d", n * s }'; }
N=$(records 2000000)
# fill TOPIC RECORDS USERS FLAGS...: makes an input, and keeps in $input what the runner has to know of it.
fill() {
  local topic=$1 n=$2 users=$3
  shift 3
  bin/gen -topic "$topic" -n "$n" -users "$users" "$@" >&2
  input="-in $topic -n $n -users $users"
  for word in distinct even; do
    if [[ " $* " == *" -$word "* ]]; then input+=" -$word"; fi
  done
  if [[ " $* " =~ " -size "([0-9]+) ]]; then input+=" -size ${BASH_REMATCH[1]}"; fi
}
small="-in events -n $N -users 10000" million="-in events1m -n $N -users 1000000 -distinct"
if { doing tput && [[ " $WORK " == *" w"* ]]; } || doing start || doing keys; then fill events "$N" 10000; fi
if doing keys || doing restore; then fill events1m "$N" 1000000 -distinct; fi

# The broker makes its own topics for groups and transactions with the first of them, which is no peer's to wait for.
fill warmup 1000 10 && bin/runner tput -in warmup -n 1000 -users 10 -w w1 -repeat 1 -commit 100 -noverify -tmp "$OUT/run" -- bin/limit > "$OUT/run/warmup.jsonl"

# shellcheck disable=SC2086 # $input and its like are words
{
  if doing tput; then
    for w in $WORK; do
      small="-in events -n $N -users 10000"
      case $w in
        hop | session | join | cep)
          n=${w^^}_N
          n=$(records "${!n:-2000000}")
          if [ "$w" = join ]; then
            n=$((n / 2))
            fill payments "$n" 10000 -w join -seed 2
          fi
          fill "$w" "$n" 10000 -w "$w"
          small=$input
          if [ "$w" = join ]; then small+=" -in2 payments"; fi
          ;;
      esac
      for p in $(peers limit millrace streams flink-heap flink-rocksdb); do
        case $p in millrace* | limit) repeat=$REPEAT ;; *) repeat=$PEER_REPEAT ;; esac
        # W0 without Flink: it is asked for W2, and W1 shows the rest.
        if [[ $p == flink* && $w == w0 && -z ${PEERS:-} ]]; then continue; fi
        measure tput "$p" "$w" $small -repeat "$repeat"
      done
    done
    small="-in events -n $N -users 10000"
  fi
  if doing start; then
    for p in $(peers limit millrace streams); do measure start "$p" w1 $small -commit 100 -repeat "$REPEAT"; done
  fi
  if doing lat; then
    for p in $(peers limit millrace streams); do measure lat "$p" w1 -commit 100 -dur "$DUR" -repeat "$LIVE_REPEAT"; done
  fi
  if doing failover; then
    for p in $(peers millrace streams); do
      measure failover "$p" w1 -commit 100 -session 6000 -dur "$DUR" -kill "$((${DUR%s} / 2))s" -repeat "$LIVE_REPEAT"
    done
  fi
  if doing restart; then
    for p in $(peers millrace streams); do
      measure failover "$p" w1 -label restart -procs 1 -keep-local -commit 100 -session 6000 -dur "$DUR" -kill "$((${DUR%s} / 2))s" -repeat "$LIVE_REPEAT"
    done
  fi
  if doing keys; then
    for p in $(peers millrace); do
      measure tput "$p" w1 -label keys $small -repeat "$REPEAT"
      measure tput "$p" w1 -label keys $million -repeat "$REPEAT"
    done
  fi
  if doing keys10m; then
    for keys in 100000 10000000; do
      fill keys "$(records 14000000)" "$(records $keys)" -distinct -even
      for p in $(peers millrace); do
        MILLRACE_MEMORY_LIMIT=1GiB measure tput "$p" w1 -label keys10m $input -steady-from 0.75 -timeout 10m -repeat "$REPEAT"
      done
    done
  fi
  if doing nexmark; then
    filled=
    queries=${QUERIES:-$(cd nexmark && { ls -v q*.sql; ls cep*.sql; } | sed 's/\.sql$//')}
    for q in $queries; do
      case $q in
        q[01238] | q22) n=${CHEAP_N:-2000000} ;;
        cep*) n=${MATCH_N:-100000} ;;
        *) n=${NEXMARK_N:-600000} ;;
      esac
      n=$(records "$n")
      topic=nexmark-$n
      if [[ " $filled " != *" $topic "* ]]; then
        bin/gen -topic "$topic" -w nexmark -n "$n" -partitions 2 >&2
        filled+=" $topic"
      fi
      for p in $(peers millrace flink-heap flink-rocksdb); do
        measure sql "$p" "$q" -in $topic -n "$n" -repeat "${NEXMARK_REPEAT:-1}" -broker "$broker"
      done
    done
  fi

  # With checkpoints as soon as Millrace has the setting; the peers keep theirs, or have none.
  checkpoints="file://$data/checkpoints" files="$data/checkpoints"
  # shellcheck disable=SC2016 # the quotes of Markdown
  if ! grep -q '`checkpoint.url`' ../../docs/configuration.md; then checkpoints=; fi
  restore() { # PEER MODES FLAGS...
    local p=$1 modes=$2
    shift 2
    if [ "$p" = millrace ] && [ -n "$checkpoints" ]; then
      measure restore "$p" w1 -session 6000 -modes "$modes" -checkpoints "$checkpoints" -checkpoint-files "$files" "$@"
    else
      measure restore "$p" w1 -session 6000 -modes "${modes/checkpoint,/}" "$@"
    fi
  }
  if [ -n "${S3_SERVER:-}" ] && { doing restore || doing restore10m; }; then
    mkdir -p "$data/s3/bench"
    ROOT_ACCESS_KEY=test ROOT_SECRET_KEY=testtest "$S3_SERVER" --port 127.0.0.1:29070 posix "$data/s3" > "$OUT/run/s3.log" 2>&1 &
    s3=$!
    for _ in $(seq 100); do (exec 3<>/dev/tcp/127.0.0.1/29070) 2>/dev/null && break; sleep 0.2; done
    checkpoints=s3://bench/checkpoints files="$data/s3/bench/checkpoints"
    export MILLRACE_CHECKPOINT_S3_ENDPOINT=http://127.0.0.1:29070 MILLRACE_CHECKPOINT_S3_REGION=us-east-1 \
      MILLRACE_CHECKPOINT_S3_PATH_STYLE=true MILLRACE_CHECKPOINT_S3_ACCESS_KEY=test MILLRACE_CHECKPOINT_S3_SECRET_KEY=testtest
  fi
  if doing restore; then
    for p in $(peers millrace streams); do restore "$p" kept,checkpoint,wiped $million -commit 100 -repeat "$REPEAT"; done
  fi
  if doing restore10m; then
    fill events10m "$(records 10000000)" "$(records 10000000)" -distinct
    for p in $(peers millrace streams); do
      restore "$p" checkpoint,wiped $input -label restore10m -state-bytes 200 -checkpoint-interval 10000 -timeout 20m -repeat 1
    done
  fi

  if [ -n "$s3" ]; then
    kill "$s3"
    s3=
    for v in ENDPOINT REGION PATH_STYLE ACCESS_KEY SECRET_KEY; do unset "MILLRACE_CHECKPOINT_S3_$v"; done
  fi

  # Each cell takes 7 to 25 s, only ten million keys take longer. The first one, 4 partitions, 10,000 keys, 141 bytes,
  # one member, belongs to three tables.
  grow() { # PEER WORKLOADS FLAGS...
    local p=$1 w works=$2
    shift 2
    for w in $works; do measure tput "$p" "$w" -label grow -metrics -repeat "$GROW_REPEAT" $input "$@"; done
  }
  if doing grow; then
    for p in $(peers millrace); do
      for partitions in 4 16 64; do
        if ! [[ " $GROW " == *" partitions "* || (" $GROW " == *" members "* && $partitions = 16) || $partitions = 4 ]]; then continue; fi
        fill grow "$(records 8000000)" 10000 -partitions $partitions
        grow "$p" "w1 w2"
        if [[ $partitions = 16 && " $GROW " == *" members "* ]]; then
          for members in 2 4; do grow "$p" w1 -members $members; done
        fi
      done
      if [[ " $GROW " == *" keys "* ]]; then
        for keys in 100000 1000000 10000000; do
          fill grow "$(records $((keys == 10000000 ? 10000000 : 8000000)))" $keys -distinct
          grow "$p" "w1 w2"
        done
      fi
      if [[ " $GROW " == *" size "* ]]; then
        for cell in "100 8000000" "1000 5000000" "10000 800000"; do
          fill grow "$(records "${cell#* }")" 10000 -size "${cell% *}"
          grow "$p" w1
        done
      fi
    done
  fi
}
python3 report.py "$OUT/results.jsonl"
echo
echo "JSON lines: $OUT/results.jsonl, logs: $OUT/run"
exit $failed
