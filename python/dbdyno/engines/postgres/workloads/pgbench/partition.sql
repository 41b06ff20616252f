create ${unlogged} table ${schema}.pgbench_accounts_${number} partition of ${schema}.pgbench_accounts ${bounds} with (fillfactor = ${fillfactor}) ${tablespace}
