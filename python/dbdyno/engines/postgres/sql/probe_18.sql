-- This session's own I/O: a logical read is a hit or a block read; one read may bring several blocks.
select (sum(hits) + sum(read_bytes) / pg_catalog.current_setting('block_size')::int)::bigint as lio,
       (sum(read_bytes) / pg_catalog.current_setting('block_size')::int)::bigint as blocks_read
from pg_catalog.pg_stat_get_backend_io(pg_catalog.pg_backend_pid())
