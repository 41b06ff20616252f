-- Client connections that are not dbdyno's.
select pid, coalesce(nullif(application_name, ''), 'a client'), usename
from pg_catalog.pg_stat_activity
where backend_type = 'client backend' and pid <> pg_catalog.pg_backend_pid() and application_name not like 'dbdyno%'
order by pid
