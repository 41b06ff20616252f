-- Our own backend: its process id, and its age in seconds by the server's clock.
select pg_catalog.pg_backend_pid(),
       pg_catalog.date_part('epoch', pg_catalog.clock_timestamp() - backend_start)
from pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid())
