-- Buffers by relation and fork, with their block numbers, eight bytes each. Sessions do not wait for it: it locks
-- only one buffer header at a time.
select coalesce(b.reldatabase, 0)::bigint as database,
       b.reltablespace::bigint as tablespace,
       b.relfilenode::bigint as filenode,
       b.relforknumber::bigint as fork,
       count(*) as cached,
       count(*) filter (where b.isdirty) as dirty,
       count(*) filter (where b.pinning_backends > 0) as pinned,
       case when ${with_blocks} then pg_catalog.string_agg(pg_catalog.int8send(b.relblocknumber), '') end as blocks
from ${schema}.pg_buffercache as b
where b.relfilenode is not null
group by 1, 2, 3, 4
