-- Texts of some statements: reads the file of all texts. Whole are those of most time, as long as there is room.
select query_id,
       case
           when sum(bytes) over (order by spent desc, query_id) <= ${room} then query
           else pg_catalog.left(query, ${short})
       end as text,
       pg_catalog.length(query)::int8 as length,
       coalesce(query like '%${own}', false) as own
from (
    select s.queryid as query_id,
           pg_catalog.min(s.query) as query,
           pg_catalog.octet_length(pg_catalog.min(s.query)) as bytes,
           pg_catalog.sum(s.total_exec_time) as spent
    from ${schema}.pg_stat_statements(true) as s
    where s.queryid = any ($$1::int8[])
    group by s.queryid
) as t
