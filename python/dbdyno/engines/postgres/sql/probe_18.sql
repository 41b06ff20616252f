-- This session's own I/O: a logical read is a hit or a block read; one request may bring several blocks. And its WAL.
select (sum(hits) + sum(read_bytes) / pg_catalog.current_setting('block_size')::int)::bigint as lio,
       (sum(read_bytes) / pg_catalog.current_setting('block_size')::int)::bigint as blocks_read,
       sum(reads)::bigint as read_requests,
       (select wal_bytes::bigint from pg_catalog.pg_stat_get_backend_wal(pg_catalog.pg_backend_pid())) as wal_bytes
from pg_catalog.pg_stat_get_backend_io(pg_catalog.pg_backend_pid())
