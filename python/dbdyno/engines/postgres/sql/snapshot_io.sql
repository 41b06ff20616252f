-- Times of WAL (version 18) are counted by a setting of their own.
select ${columns}
from pg_catalog.pg_stat_io
     cross join lateral (
         select pg_catalog.current_setting(
             case when object = 'wal' then 'track_wal_io_timing' else 'track_io_timing' end)::bool as is_on
     ) as timing
