-- Who else holds the lock of dbdyno, in any database.
select a.pid, a.application_name, d.datname, a.client_addr::text,
       pg_catalog.to_char(a.backend_start at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS" UTC"')
from pg_catalog.pg_locks as l
join pg_catalog.pg_stat_get_activity(null) as a on a.pid = l.pid
left join pg_catalog.pg_database as d on d.oid = l.database
where l.locktype = 'advisory' and l.granted and l.objsubid = 1
  and l.classid = (${key}::bigint >> 32)::oid and l.objid = (${key}::bigint & 4294967295)::oid
  and l.pid <> pg_catalog.pg_backend_pid()
order by a.backend_start
