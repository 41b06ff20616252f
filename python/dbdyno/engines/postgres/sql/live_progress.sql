-- Long commands in progress. Names of tables of this database alone. Columns that a version lacks are absent in to_jsonb.
select p.pid,
       p.command,
       p.datname as database,
       coalesce(p.relid::pg_catalog.regclass::text, '') as relation,
       p.phase,
       p.unit,
       p.done,
       p.total,
       case when p.total > 0 then p.done::float8 / p.total end as share,
       extract(epoch from pg_catalog.clock_timestamp() - a.query_start)::float8 as age,
       a.wait_event_type || '/' || a.wait_event as event,
       pg_catalog.left(a.query, 10000) as statement
from (
    select pid, datname::text, case when datname = pg_catalog.current_database() then relid end as relid,
           'vacuum' as command, phase,
           case when phase like '%indexes%' and row ? 'indexes_total' then 'indexes' else 'blocks' end as unit,
           case when phase like '%indexes%' and row ? 'indexes_total' then (row ->> 'indexes_processed')::int8
                when phase = 'vacuuming heap' then heap_blks_vacuumed else heap_blks_scanned end as done,
           case when phase like '%indexes%' and row ? 'indexes_total' then (row ->> 'indexes_total')::int8
                else heap_blks_total end as total
    from (select v.*, to_jsonb(v) as row from pg_catalog.pg_stat_progress_vacuum as v) as vacuum
    union all
    select pid, datname::text, case when datname = pg_catalog.current_database() then relid end, 'analyze', phase,
           'blocks', sample_blks_scanned, sample_blks_total
    from pg_catalog.pg_stat_progress_analyze
    union all
    select pid, datname::text, case when datname = pg_catalog.current_database() then relid end, lower(command), phase,
           case when phase like 'waiting%' then 'transactions' when blocks_total > 0 then 'blocks' else 'rows' end,
           case when phase like 'waiting%' then lockers_done when blocks_total > 0 then blocks_done else tuples_done end,
           case when phase like 'waiting%' then lockers_total when blocks_total > 0 then blocks_total
                else tuples_total end
    from pg_catalog.pg_stat_progress_create_index
    union all
    select pid, datname::text, case when datname = pg_catalog.current_database() then relid end, lower(command), phase,
           'blocks', heap_blks_scanned, heap_blks_total
    from pg_catalog.pg_stat_progress_cluster
    union all
    select pid, datname::text, case when datname = pg_catalog.current_database() then relid end, lower(command),
           lower(type), 'bytes', bytes_processed, bytes_total
    from pg_catalog.pg_stat_progress_copy
    union all
    select pid, null, null, 'base backup', phase, 'bytes', backup_streamed, backup_total
    from pg_catalog.pg_stat_progress_basebackup
) as p
     left join lateral pg_catalog.pg_stat_get_activity(p.pid) as a on true
order by age desc nulls last
limit ${limit}
