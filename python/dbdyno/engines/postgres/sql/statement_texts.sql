-- Texts of some statements: reads the file of all texts.
select distinct on (s.queryid)
       s.queryid as query_id,
       pg_catalog.left(s.query, 4096) as text
from ${schema}.pg_stat_statements(true) as s
where s.queryid = any ($$1::int8[])
order by s.queryid, s.query is null
