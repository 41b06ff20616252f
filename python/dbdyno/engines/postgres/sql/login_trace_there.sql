-- The login trigger by our name in this database: its function, and whether both belong to a superuser.
select p.oid::regprocedure::text = 'dbdyno_logins.login()',
       (select rolsuper from pg_roles where oid = e.evtowner) and (select rolsuper from pg_roles where oid = p.proowner)
from pg_event_trigger as e join pg_proc as p on p.oid = e.evtfoid
where e.evtname = 'dbdyno_trace_logins'
