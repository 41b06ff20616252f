-- Latest statements of the sessions that the live view shows.
select a.pid, a.query_id, pg_catalog.left(a.query, 10000) as text
from pg_catalog.pg_stat_get_activity(null) as a
where a.pid = any ('{${pids}}'::int[]) and a.query <> '' and a.query <> '<insufficient privilege>'
