-- One sample: who is there and what each waits for. Without its own backend.
select pid,
       case
           when backend_type = 'client backend' then null
           when backend_type is not null then lower(backend_type)
           when datid is null then 'unknown'
       end as helper,
       state,
       wait_event_type as wait_class,
       wait_event,
       query_id,
       leader_pid
from pg_catalog.pg_stat_get_activity(null)
where pid <> pg_catalog.pg_backend_pid()
