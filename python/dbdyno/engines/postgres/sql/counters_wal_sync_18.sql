-- In milliseconds; 0 while track_wal_io_timing is off.
select sum(fsync_time) * 1e6 as wal_sync_time_ns
from pg_catalog.pg_stat_io
where object = 'wal' and context = 'normal'
