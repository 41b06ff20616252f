#!/bin/sh
# How often pgbench draws each number: draws.sh CONNECTION > draws.txt (any server; nothing is sent to it)
set -eu
script=$(mktemp)
echo "# $(pgbench --version); random seed 20240601; 200000 draws of each, made by draws.sh."
echo "# Counts of the lower bound, the next number ..., at last of all that are 100 or more above it."
while IFS='|' read -r low expression; do
    echo "\\set x debug($expression)" > "$script"
    pgbench -n -t 200000 --random-seed=20240601 -f "$script" "$1" 2>&1 | awk -v low="$low" -v name="$expression" '
        / int / { i = $NF - low; n[i > 100 ? 100 : i]++ }
        END { printf "%s:", name; for (i = 0; i <= 100; i++) printf " %d", n[i]; print "" }'
done <<'END'
1|random(1, 10)
-3|random(-3, 96)
1|random_gaussian(1, 100, 2.0)
1|random_gaussian(1, 100, 5)
-50|random_gaussian(-50, 49, 10)
1|random_exponential(1, 100, 0.1)
1|random_exponential(1, 100, 3)
-20|random_exponential(-20, 10, 10.5)
1|random_zipfian(1, 100, 1.001)
1|random_zipfian(1, 100, 1.07)
1|random_zipfian(1, 1000000, 1.5)
0|random_zipfian(0, 9, 3)
END
rm "$script"
