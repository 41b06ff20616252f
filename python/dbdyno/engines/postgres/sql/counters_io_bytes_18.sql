select sum(read_bytes) as io_read_bytes, sum(write_bytes) as io_write_bytes
from pg_catalog.pg_stat_io
where object <> 'wal'
