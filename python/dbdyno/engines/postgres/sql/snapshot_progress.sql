-- Long commands that are under way; names of tables of this database alone.
select ${columns}
from (
    select pid, datid, datname::text, relid, 'vacuum' as command, phase,
           heap_blks_scanned as done, heap_blks_total as total
    from pg_catalog.pg_stat_progress_vacuum
    union all
    select pid, datid, datname::text, relid, 'analyze', phase, sample_blks_scanned, sample_blks_total
    from pg_catalog.pg_stat_progress_analyze
    union all
    select pid, datid, datname::text, relid, lower(command), phase, blocks_done, blocks_total
    from pg_catalog.pg_stat_progress_create_index
    union all
    select pid, datid, datname::text, relid, lower(command), phase, heap_blks_scanned, heap_blks_total
    from pg_catalog.pg_stat_progress_cluster
    union all
    select pid, datid, datname::text, relid, lower(command), lower(type), bytes_processed, bytes_total
    from pg_catalog.pg_stat_progress_copy
    union all
    select pid, null, null, null, 'base backup', phase, backup_streamed, backup_total
    from pg_catalog.pg_stat_progress_basebackup
) as progress
     left join pg_catalog.pg_class on pg_class.oid = progress.relid and progress.datname = pg_catalog.current_database()
     left join pg_catalog.pg_namespace on pg_namespace.oid = pg_class.relnamespace
