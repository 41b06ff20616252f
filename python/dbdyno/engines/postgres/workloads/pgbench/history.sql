create ${unlogged} table ${schema}.pgbench_history (tid int, bid int, aid ${aid}, delta int, mtime timestamp, filler char(22)) ${tablespace}
