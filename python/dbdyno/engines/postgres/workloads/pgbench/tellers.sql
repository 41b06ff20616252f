create ${unlogged} table ${schema}.pgbench_tellers (tid int not null, bid int, tbalance int, filler char(84)) with (fillfactor = ${fillfactor}) ${tablespace}
