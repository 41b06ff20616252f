-- Sums over all databases and the shared relations.
select sum(active_time) * 1e6 as db_time_ns,
       sum(session_time) * 1e6 as session_time_ns,
       sum(idle_in_transaction_time) * 1e6 as idle_in_transaction_ns,
       sum(sessions) as logons,
       sum(xact_commit) as transactions_committed,
       sum(xact_rollback) as transactions_rolled_back,
       sum(blks_hit + blks_read) as logical_reads,
       sum(blks_read) as physical_reads,
       sum(blks_read) * pg_catalog.current_setting('block_size')::int as physical_read_bytes,
       sum(temp_bytes) as temporary_bytes,
       sum(deadlocks) as deadlocks
from pg_catalog.pg_stat_database
