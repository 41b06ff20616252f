create function dbdyno_logins.login() returns event_trigger language plpgsql security definer
set search_path = pg_catalog, pg_temp
as ${body}
