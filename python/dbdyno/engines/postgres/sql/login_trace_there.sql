-- What is installed in this database, by the comment on its schema.
select pg_catalog.obj_description(n.oid, 'pg_namespace'),
       exists (select from pg_catalog.pg_event_trigger where evtname = 'dbdyno_trace_logins')
from pg_catalog.pg_namespace as n
where n.nspname = 'dbdyno_logins'
