-- Counters of every statement; without the texts, which are in a file. What versions call otherwise is filled in.
select pg_catalog.pg_get_userbyid(s.userid)::text as "user",
       d.datname::text as database,
       s.queryid as query_id,
       s.toplevel,
       s.calls,
       (s.total_exec_time * 1e6)::int8 as exec_ns,
       s.rows,
       s.shared_blks_hit,
       s.shared_blks_read,
       s.shared_blks_dirtied,
       s.shared_blks_written,
       s.local_blks_hit,
       s.local_blks_read,
       s.local_blks_dirtied,
       s.local_blks_written,
       s.temp_blks_read,
       s.temp_blks_written,
       case when t.io then ((${read_ms}) * 1e6)::int8 end as blk_read_ns,
       case when t.io then ((${write_ms}) * 1e6)::int8 end as blk_write_ns,
       s.wal_records,
       s.wal_bytes::int8 as wal_bytes,
       case when t.plans then (s.total_plan_time * 1e6)::int8 end as plan_ns,
       ((${jit_ms}) * 1e6)::int8 as jit_ns,
       extract(epoch from ${since})::float8 as since_s,
       i.dealloc as evictions,
       extract(epoch from i.stats_reset)::float8 as reset_s${more}
from ${schema}.pg_stat_statements(false) as s
     cross join ${schema}.pg_stat_statements_info() as i
     cross join (select pg_catalog.current_setting('track_io_timing')::bool as io,
                        pg_catalog.current_setting('pg_stat_statements.track_planning')::bool as plans) as t
     left join pg_catalog.pg_database as d on d.oid = s.dbid
where s.calls > 0
