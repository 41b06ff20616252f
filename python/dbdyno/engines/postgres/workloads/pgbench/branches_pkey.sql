alter table only ${schema}.pgbench_branches add primary key (bid) ${index_tablespace}
