-- Those of these processes that exist but are no clients.
select pid, lower(backend_type) as kind
from pg_catalog.pg_stat_get_activity(null)
where pid = any ($1::int[]) and backend_type <> 'client backend'
order by pid
