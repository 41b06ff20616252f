-- Who is connected now, whole server. What is hidden from this role is NULL; then backend_type is, too.
select a.pid,
       (extract(epoch from a.backend_start) * 1000000000)::bigint as backend_start_ns,
       lower(a.backend_type) as kind,
       a.leader_pid,
       r.rolname as "user",
       d.datname as "database",
       nullif(a.application_name, '') as application,
       coalesce(pg_catalog.host(a.client_addr), case when a.client_port = -1 then 'local' end) as client,
       a.query_id,
       case when a.backend_type is null then 'not permitted' else 'ok' end as status
from pg_catalog.pg_stat_get_activity(null) as a
left join pg_catalog.pg_roles as r on r.oid = a.usesysid
left join pg_catalog.pg_database as d on d.oid = a.datid
order by a.pid
