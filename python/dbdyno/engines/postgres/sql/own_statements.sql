-- Ids of dbdyno's own statements among those that the server counts: reads the file of all texts.
select s.queryid as query_id
from ${schema}.pg_stat_statements(true) as s
where s.queryid is not null and s.query like '%${own}'
group by s.queryid
