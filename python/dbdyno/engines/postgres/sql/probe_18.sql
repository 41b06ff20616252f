-- This session's own I/O: a logical read is a hit or a block read; one request may bring several blocks. And its WAL.
-- Operators are qualified, which takes their precedence away: it runs in sessions with the user's search_path.
select (pg_catalog.sum(hits) operator(pg_catalog.+)
        (pg_catalog.sum(read_bytes) operator(pg_catalog./) pg_catalog.current_setting('block_size')::int))::bigint as lio,
       (pg_catalog.sum(read_bytes) operator(pg_catalog./) pg_catalog.current_setting('block_size')::int)::bigint as blocks_read,
       pg_catalog.sum(reads)::bigint as read_requests,
       (select wal_bytes::bigint from pg_catalog.pg_stat_get_backend_wal(pg_catalog.pg_backend_pid())) as wal_bytes
from pg_catalog.pg_stat_get_backend_io(pg_catalog.pg_backend_pid())
