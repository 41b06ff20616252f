create ${unlogged_parent} table ${schema}.pgbench_accounts (aid ${aid} not null, bid int, abalance int, filler char(84)) ${storage} ${tablespace}
