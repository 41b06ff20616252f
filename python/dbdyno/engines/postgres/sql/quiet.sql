-- What is only tried leaves no line in the server's log: for a role that may say so.
select pg_catalog.set_config('log_min_messages', 'panic', false),
       pg_catalog.set_config('log_min_error_statement', 'panic', false)
from pg_catalog.pg_roles
where rolname = current_user and rolsuper
