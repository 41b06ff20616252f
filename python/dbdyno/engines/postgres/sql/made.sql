-- What is in our schema, with its stamp.
select 'table' as kind, c.relname as name, pg_catalog.obj_description(c.oid, 'pg_class') as stamp
from pg_catalog.pg_class as c
where c.relnamespace = pg_catalog.to_regnamespace('dbdyno') and c.relkind = 'r'
union all
select 'function', p.proname, pg_catalog.obj_description(p.oid, 'pg_proc')
from pg_catalog.pg_proc as p
where p.pronamespace = pg_catalog.to_regnamespace('dbdyno')
order by 1, 2
