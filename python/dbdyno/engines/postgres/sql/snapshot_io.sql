-- Version 18 times WAL only if a setting of its own is on.
select ${columns}
from pg_catalog.pg_stat_io
     cross join lateral (
         select pg_catalog.current_setting(
             case when object = 'wal' then 'track_wal_io_timing' else 'track_io_timing' end)::bool as is_on
     ) as timing
