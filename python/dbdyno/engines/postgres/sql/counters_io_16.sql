-- Only I/O of relations, as in all versions: 18 also has rows for WAL. Up to 17 each write is one block.
select sum(hits) as io_hits,
       sum(reads) as read_requests,
       sum(writes) as io_writes,
       sum(writes) as block_writes,
       sum(extends) as io_extends,
       sum(fsyncs) as io_fsyncs,
       sum(evictions) as io_evictions
from pg_catalog.pg_stat_io
where object <> 'wal'
