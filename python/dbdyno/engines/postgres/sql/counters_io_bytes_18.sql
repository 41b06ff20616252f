select sum(read_bytes) as io_read_bytes,
       sum(write_bytes) as io_write_bytes,
       sum(write_bytes) / pg_catalog.current_setting('block_size')::int as block_writes
from pg_catalog.pg_stat_io
where object <> 'wal'
