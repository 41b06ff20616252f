-- Sizes on disk of tables, what they keep out of line, and indexes: the largest first, for ${seconds} s only, and none
-- that somebody locks or waits to lock exclusively, which a look at its size would wait for.
select oid::int8,
       kind,
       owner::int8,
       case
           when locked or pg_catalog.clock_timestamp() > (select pg_catalog.clock_timestamp()) + interval '${seconds} s'
               then null
           when reltoastrelid = 0 then pg_catalog.pg_table_size(oid)
           -- by file, as what is out of line is a row of its own
           else pg_catalog.pg_relation_size(oid, 'main') + pg_catalog.pg_relation_size(oid, 'fsm')
                + pg_catalog.pg_relation_size(oid, 'vm') + pg_catalog.pg_relation_size(oid, 'init')
       end as bytes,
       relpages::int8 * pg_catalog.current_setting('block_size')::int8 as known
from (
    select c.oid, c.relpages, c.reltoastrelid,
           case when t.oid is not null then 'toast' when i.indexrelid is not null then 'index' else 'table' end as kind,
           coalesce(t.oid, i.indrelid, c.oid) as owner,
           c.oid in (
               select l.relation from pg_catalog.pg_locks as l
               where l.locktype = 'relation' and l.mode = 'AccessExclusiveLock'
                     and l.database in (0, (select d.oid from pg_catalog.pg_database as d
                                            where d.datname = pg_catalog.current_database()))
           ) as locked
    from pg_catalog.pg_class as c
         left join pg_catalog.pg_index as i on i.indexrelid = c.oid
         left join pg_catalog.pg_class as t on t.reltoastrelid = coalesce(i.indrelid, c.oid)
    where c.relkind in ('r', 'm', 't', 'i')
    order by c.relpages desc
    offset 0
) as c
