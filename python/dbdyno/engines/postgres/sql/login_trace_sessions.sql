-- Sessions of a role, in the order in which they began.
select pid, extract(epoch from backend_start)::float8, coalesce(pg_catalog.host(client_addr), 'local'), datname
from pg_catalog.pg_stat_activity
where usename = ${role} and backend_type = 'client backend'
order by backend_start, pid
