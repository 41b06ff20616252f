-- One sample: all sessions and their wait events, without its own backend and dbdyno's control connection. A role
-- that may not see others gets NULL for their backend_type and activity: their state is 'hidden', and those with a
-- database count as clients.
select pid,
       case
           when backend_type = 'client backend' then null
           when backend_type is not null then lower(backend_type)
           when coalesce(leader_pid, pid) <> pid then 'parallel worker'  -- one that is ending has no type
           when datid is null then 'unknown'
       end as helper,
       case when backend_type is null and coalesce(leader_pid, pid) = pid then 'hidden' else state end as state,
       wait_event_type as wait_class,
       wait_event,
       query_id,
       leader_pid${chosen}
from pg_catalog.pg_stat_get_activity(null)
where pid <> all (array[pg_catalog.pg_backend_pid(), ${control}])${report}
