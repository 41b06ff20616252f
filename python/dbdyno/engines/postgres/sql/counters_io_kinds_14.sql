-- Blocks written by who wrote them; backends that extend relations are included, and autovacuum is among them.
select buffers_backend as sessions_writes,
       buffers_backend * pg_catalog.current_setting('block_size')::int as sessions_written_bytes,
       buffers_checkpoint + buffers_clean as background_writes,
       (buffers_checkpoint + buffers_clean) * pg_catalog.current_setting('block_size')::int as background_written_bytes
from pg_catalog.pg_stat_bgwriter
