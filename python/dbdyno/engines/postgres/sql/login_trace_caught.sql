select extract(epoch from c.at)::float8, c.pid, c.sessions, c.role, c.client, a.pid is not null
from dbdyno_logins.caught as c
     left join pg_catalog.pg_stat_get_activity(null) as a on a.pid = c.pid and a.backend_start = c.started
order by c.at
