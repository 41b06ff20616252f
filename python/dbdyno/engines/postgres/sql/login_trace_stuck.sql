-- Sessions that have been in the trigger for too long: their login goes on when it is cancelled.
select pg_catalog.pg_cancel_backend(a.pid)
from pg_catalog.pg_stat_get_activity(null) as a
     join pg_catalog.pg_locks as l on l.pid = a.pid
where l.locktype = 'advisory' and l.classid = 0 and l.objid = ${lock} and l.mode = 'ShareLock'
      and coalesce(a.state, 'starting') = 'starting'
      and a.backend_start < pg_catalog.clock_timestamp() - interval '1 s'
