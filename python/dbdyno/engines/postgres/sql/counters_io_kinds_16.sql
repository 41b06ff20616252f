-- I/O of relations by who asked for it: sessions (their parallel workers are background workers), or the server's own
-- processes. Extending a relation is a write. Each request counts as one a block.
select sum(logical) filter (where session) as sessions_logical_reads,
       sum(read) filter (where session) as sessions_reads,
       sum(read * op_bytes) filter (where session) as sessions_read_bytes,
       sum(written) filter (where session) as sessions_writes,
       sum(written * op_bytes) filter (where session) as sessions_written_bytes,
       sum(logical) filter (where not session) as background_logical_reads,
       sum(read) filter (where not session) as background_reads,
       sum(read * op_bytes) filter (where not session) as background_read_bytes,
       sum(written) filter (where not session) as background_writes,
       sum(written * op_bytes) filter (where not session) as background_written_bytes
from (select backend_type in ('client backend', 'background worker') as session,
             coalesce(hits, 0) + coalesce(reads, 0) as logical,
             coalesce(reads, 0) as read,
             coalesce(writes, 0) + coalesce(extends, 0) as written,
             op_bytes
      from pg_catalog.pg_stat_io) as io
