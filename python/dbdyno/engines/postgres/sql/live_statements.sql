-- Counters of the statements that the live view shows.
select s.queryid as query_id, sum(s.calls)::int8 as calls, sum(s.total_exec_time * 1e6)::int8 as exec_ns
from ${schema}.pg_stat_statements(false) as s
where s.queryid = any ('{${ids}}'::int8[])
group by s.queryid
