-- What dbdyno's own connections have read and reported so far: the control connection, and those of this name.
-- The server reports them and the counters of databases in one act, so neither is ahead of the other.
select a.pid,
       extract(epoch from a.backend_start)::float8 as started_s,
       coalesce(sum(io.hits), 0)::float8
       + coalesce(sum(io.read_bytes) / current_setting('block_size')::int8, 0)::float8 as logical_reads,
       coalesce(sum(io.read_bytes) / current_setting('block_size')::int8, 0)::float8 as physical_reads
from pg_catalog.pg_stat_get_activity(null) as a
cross join lateral pg_catalog.pg_stat_get_backend_io(a.pid) as io
where a.pid = pg_catalog.pg_backend_pid() or a.application_name = '${observer}'
group by a.pid, a.backend_start
