#!/bin/sh
# Records the runs of tests/golden/corpus anew: tools/record_corpus.sh PYTHON DIRECTORY
#
# PYTHON has dbdyno, and DIRECTORY (new, readable by the server's user) gets everything that the program writes. Their paths
# stand in what is recorded: choose ones that may be published. Needs root for the scheduler trace and the CPU profile,
# pgbench in PATH for the observed load, and the extra `cluster`. Takes about five minutes; the order of the runs matters,
# as snapshots lie between them.
set -eu
python=$1 home=$2 here=$(cd "$(dirname "$0")/.." && pwd)
mkdir -m 755 "$home"
cd "$home"
export XDG_DATA_HOME="$home/data" XDG_STATE_HOME="$home/state" XDG_CACHE_HOME="$home/cache" DBDYNO_SERVER_DIR="$home/server"
export DBDYNO_CONFIG= PYTHONPATH="$here:$here/tests/entry_points"
cp "$here/LICENSE" text
cp "$here"/tests/golden/corpus/*.toml .
dbdyno() { "$python" -m dbdyno "$@" --quiet; }
lio="--call-target 5ms --settle 300ms --measure 2s"

dbdyno run lio --engine fake --dsn fake:cpus=4,cpu=10ms --sessions 1,2,4,8,16 --repeats 3 --call-target 10ms --settle 0s \
	--measure 2s --name simulated
dbdyno server start
trap '"$python" -m dbdyno server stop --quiet' EXIT
dbdyno snapshot --name before
dbdyno run lio --sessions 1,2,4 $lio --name ladder
dbdyno snapshot --name after
dbdyno run lio --rates 50,150 --sessions 4 $lio --name paced
dbdyno run phases.toml --call-target 5ms --settle 300ms --name phases
dbdyno run variants.toml --call-target 5ms --name variants
dbdyno workload prepare pgbench -s 1
dbdyno run -b tpcb-like -c 2 -T 2 --settle 200ms --profile --name scripts
dbdyno run --command 'gzip -kc text' --command 'sort text' --runs 12 --sessions 1,2 --name commands
dbdyno run --jobs jobs.toml threads=1,2 rounds=20 size=1 --orders serial,both --repeats 2 --name jobs
dbdyno run lio --sessions 2,4 $lio --cluster local:2 --no-snapshots --name cluster
dsn=$("$python" -m dbdyno server status --json | "$python" -c 'import json, sys; print(json.load(sys.stdin)["dsn"])')
pgbench --client 3 --time 12 "$dsn" &
dbdyno observe --for 6s --window 2s --name observation
wait
dbdyno snapshot --name later

tar --create --xz --file "$here/tests/golden/corpus/runs.tar.xz" --directory "$XDG_DATA_HOME/dbdyno" --sort=name --owner=0 --group=0 \
	--exclude=derived --exclude=parts --exclude=document.json --exclude=report.html .
