alter table ${only_accounts} ${schema}.pgbench_accounts add primary key (aid) ${index_tablespace}
