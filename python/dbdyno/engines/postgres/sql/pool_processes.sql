-- Server connections of a pooler, identified by their application_name; the oldest first.
select pid
from pg_catalog.pg_stat_get_activity(null)
where application_name = %s
order by backend_start, pid
