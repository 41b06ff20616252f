-- The connection's own settings. Every name here is qualified, so that the present search_path does not matter, and
-- a standby accepts the transaction. The server counts each statement by itself, so each has the mark.
set transaction isolation level read committed /* dbdyno */;
select s.name, s.setting, s.source, case when ${answers} then pg_catalog.set_config(s.name, w.value, false) end
from (values ${wanted}) as w (name, value)
     join pg_catalog.pg_settings as s on s.name operator(pg_catalog.=) w.name
where s.context operator(pg_catalog.=) 'user' or ${may_set}
