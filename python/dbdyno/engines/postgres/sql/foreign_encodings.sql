-- Databases with statements whose texts are in another encoding than this database's, or that were dropped.
select distinct s.dbid
from ${schema}.pg_stat_statements(false) as s
     left join pg_catalog.pg_database as d on d.oid = s.dbid
     cross join (select encoding from pg_catalog.pg_database where datname = pg_catalog.current_database()) as here
where d.encoding is distinct from here.encoding
order by s.dbid
