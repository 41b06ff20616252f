-- Relations of this database, and shared ones, by tablespace and number of their file; what belongs to a large
-- value table has its table's name. Nothing for a file of none: dropped, or not committed yet. Takes no lock.
select f.tablespace, f.filenode,
       n.nspname || '.' || t.relname as relation,
       case when c.relnamespace = 'pg_toast'::pg_catalog.regnamespace then 'toast'
            when c.relkind in ('i', 'I') then 'index'
            when c.relkind in ('r', 'm', 'p') then 'table'
            else 'other' end as kind
from unnest(%s::bigint[], %s::bigint[]) as f (tablespace, filenode)
join pg_catalog.pg_class as c
  on c.oid = pg_catalog.pg_filenode_relation(f.tablespace::pg_catalog.oid, f.filenode::pg_catalog.oid)
left join pg_catalog.pg_index as i on i.indexrelid = c.oid and c.relnamespace = 'pg_toast'::pg_catalog.regnamespace
left join pg_catalog.pg_class as o on o.reltoastrelid = coalesce(i.indrelid, c.oid)
     and c.relnamespace = 'pg_toast'::pg_catalog.regnamespace
join pg_catalog.pg_class as t on t.oid = coalesce(o.oid, c.oid)
join pg_catalog.pg_namespace as n on n.oid = t.relnamespace
