-- 0 once all that was received is replayed. NULL on a primary, and for a role that may not see it.
select case when max(current_chunk_start_time) is null then null
            when pg_catalog.pg_last_wal_receive_lsn() <= pg_catalog.pg_last_wal_replay_lsn() then 0
            else 1e9 * extract(epoch from pg_catalog.clock_timestamp() - max(current_chunk_start_time))
       end as replay_chunk_ns
from pg_catalog.pg_stat_recovery
