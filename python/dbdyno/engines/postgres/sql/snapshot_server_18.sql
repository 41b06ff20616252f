-- One row of all the server's own counters.
select ${columns}
from pg_catalog.pg_stat_wal
     cross join pg_catalog.pg_stat_bgwriter
     cross join pg_catalog.pg_stat_archiver
     cross join (select case when pg_catalog.pg_is_in_recovery() then pg_catalog.pg_last_wal_replay_lsn()
                         else pg_catalog.pg_current_wal_lsn() end as lsn) as here
     cross join pg_catalog.pg_stat_checkpointer
     cross join (select sum(writes) as writes, sum(fsyncs) as fsyncs, sum(write_time) as write_time,
                        sum(fsync_time) as fsync_time, max(stats_reset) as stats_reset
                 from pg_catalog.pg_stat_io where object = 'wal' and context = 'normal') as wal_io
