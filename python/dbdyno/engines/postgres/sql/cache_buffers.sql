-- Buffers by relation and fork, with the numbers of its blocks, eight bytes each. It takes no lock that sessions
-- wait for but that of one buffer's header at a time.
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
