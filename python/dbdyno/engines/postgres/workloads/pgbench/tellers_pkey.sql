alter table only ${schema}.pgbench_tellers add primary key (tid) ${index_tablespace}
