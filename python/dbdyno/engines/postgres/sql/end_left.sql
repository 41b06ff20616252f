-- Ends those of these processes that serve dbdyno's drivers, of our own role.
select pg_catalog.count(*) filter (where pg_catalog.pg_terminate_backend(a.pid))
from pg_catalog.pg_stat_get_activity(null) as a
join pg_catalog.pg_roles as r on r.oid = a.usesysid
where a.pid = any(%s) and a.pid <> pg_catalog.pg_backend_pid()
      and r.rolname = session_user and a.application_name = %s
