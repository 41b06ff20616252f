-- The columns of the activity view in this version.
select p.proargnames::text[] from pg_catalog.pg_proc as p
where p.proname = '${function}' and p.pronamespace = 'pg_catalog'::pg_catalog.regnamespace
