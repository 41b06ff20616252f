-- Statements of less than 0.1 s whose compilation took a tenth of their time or more, of those that are counted.
select pg_catalog.count(*) filter (where compiled >= 0.1 * s.total_exec_time and s.mean_exec_time < 100),
       pg_catalog.count(*)
from ${schema}.pg_stat_statements(false) as s
     cross join lateral (select ${jit_ms} as compiled) as j
where s.calls > 0
