-- This session's own I/O: a logical read is a hit or a block read; one request may bring several blocks; extending a
-- relation is a write. And its WAL.
-- Operators are qualified, which takes their precedence away: it runs in sessions with the user's search_path.
select (pg_catalog.sum(hits) operator(pg_catalog.+)
        (pg_catalog.sum(read_bytes) operator(pg_catalog./) pg_catalog.current_setting('block_size')::int))::bigint as lio,
       (pg_catalog.sum(read_bytes) operator(pg_catalog./) pg_catalog.current_setting('block_size')::int)::bigint as blocks_read,
       pg_catalog.sum(reads)::bigint as read_requests,
       pg_catalog.sum(read_bytes)::bigint as read_bytes,
       (pg_catalog.sum(writes) filter (where object operator(pg_catalog.<>) 'wal')
        operator(pg_catalog.+) pg_catalog.sum(extends))::bigint as writes,
       (pg_catalog.sum(write_bytes) filter (where object operator(pg_catalog.<>) 'wal')
        operator(pg_catalog.+) pg_catalog.sum(extend_bytes))::bigint as written_bytes,
       (pg_catalog.sum(writes) filter (where object operator(pg_catalog.=) 'wal'))::bigint as wal_writes,
       (pg_catalog.sum(fsyncs) filter (where object operator(pg_catalog.=) 'wal'))::bigint as wal_syncs,
       pg_catalog.min(wal_bytes)::bigint as wal_bytes,
       pg_catalog.min(wal_records)::bigint as wal_records,
       pg_catalog.min(wal_fpi)::bigint as wal_full_page_images
from pg_catalog.pg_stat_get_backend_io(pg_catalog.pg_backend_pid())
     cross join pg_catalog.pg_stat_get_backend_wal(pg_catalog.pg_backend_pid()) as wal
