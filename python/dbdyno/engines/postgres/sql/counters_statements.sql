-- Without the texts, which are in a file.
select coalesce(sum(calls), 0) as executions,
       coalesce(sum(shared_blks_dirtied + local_blks_dirtied), 0) as blocks_dirtied
from ${schema}.pg_stat_statements(false)
