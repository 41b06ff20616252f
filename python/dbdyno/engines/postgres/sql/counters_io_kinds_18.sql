-- I/O by who asked for it: sessions (their parallel workers are background workers), or the server's own processes.
-- Extending a relation is a write. An I/O worker reads for the session that asked, which counts it.
select sum(logical) filter (where session and not wal) as sessions_logical_reads,
       sum(reads) filter (where session and not wal) as sessions_reads,
       sum(read_bytes) filter (where session and not wal) as sessions_read_bytes,
       sum(written) filter (where session and not wal) as sessions_writes,
       sum(written_bytes) filter (where session and not wal) as sessions_written_bytes,
       sum(written) filter (where session and wal) as sessions_wal_writes,
       sum(fsyncs) filter (where session and wal) as sessions_wal_syncs,
       sum(logical) filter (where not session and not wal) as background_logical_reads,
       sum(reads) filter (where not session and not wal) as background_reads,
       sum(read_bytes) filter (where not session and not wal) as background_read_bytes,
       sum(written) filter (where not session and not wal) as background_writes,
       sum(written_bytes) filter (where not session and not wal) as background_written_bytes,
       sum(written) filter (where not session and wal) as background_wal_writes,
       sum(fsyncs) filter (where not session and wal) as background_wal_syncs
from (select backend_type in ('client backend', 'background worker') as session,
             object = 'wal' as wal,
             coalesce(hits, 0) + coalesce(read_bytes, 0) / pg_catalog.current_setting('block_size')::int as logical,
             reads,
             read_bytes,
             coalesce(writes, 0) + coalesce(extends, 0) as written,
             coalesce(write_bytes, 0) + coalesce(extend_bytes, 0) as written_bytes,
             case when context = 'normal' then fsyncs end as fsyncs
      from pg_catalog.pg_stat_io) as io
