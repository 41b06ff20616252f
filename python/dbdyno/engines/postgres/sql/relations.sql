-- A table and its indexes, by oid.
select c.relname, c.oid::bigint || coalesce(',' || string_agg(i.indexrelid::bigint::text, ','), '')
from pg_catalog.pg_class as c
left join pg_catalog.pg_index as i on i.indrelid = c.oid
where c.relnamespace = pg_catalog.to_regnamespace('dbdyno') and c.relkind = 'r'
group by c.oid, c.relname
