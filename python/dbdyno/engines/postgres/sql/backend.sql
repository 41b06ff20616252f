-- Our own backend: its process id, its age and the server's in seconds by the server's clock, and the port of
-- its client (a pooler's, where there is one; NULL: a unix socket).
select pg_catalog.pg_backend_pid(),
       pg_catalog.date_part('epoch', pg_catalog.clock_timestamp() - backend_start),
       pg_catalog.date_part('epoch', pg_catalog.clock_timestamp() - pg_catalog.pg_postmaster_start_time()),
       pg_catalog.inet_client_port()
from pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid())
