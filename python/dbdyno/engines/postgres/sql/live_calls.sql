-- All executions of statements; without the texts, which are in a file.
select sum(s.calls)::int8 as statements
from ${schema}.pg_stat_statements(false) as s
     left join pg_catalog.pg_database as d on d.oid = s.dbid
where ${database}
