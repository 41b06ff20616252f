alter table ${schema}.pgbench_accounts add primary key (aid) ${index_tablespace}
