-- Our own search_path, and the one before. Nothing in here is looked up by that one. NULL: a pooler answers.
select pg_catalog.current_setting('search_path'),
       case when pg_catalog.pg_backend_pid() operator(pg_catalog.=) %s::pg_catalog.int4
            then pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false) end
