-- In one transaction with the flag of the database that it has login triggers. The server itself clears that in the next
-- login; on a standby it tries as well, may not, and refuses the login (PostgreSQL 17 and 18).
drop event trigger if exists dbdyno_trace_logins;
update pg_catalog.pg_database set dathasloginevt = false
where datname = pg_catalog.current_database() and dathasloginevt
      and not exists (select from pg_catalog.pg_event_trigger where evtevent = 'login' and evtenabled <> 'D')
