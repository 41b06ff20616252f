create function dbdyno_logins.trace() returns void language plpgsql
set search_path = pg_catalog, pg_temp set lock_timeout = '100ms' set client_min_messages = 'error'
set log_error_verbosity = 'terse'
as ${body}
