-- The search_path before, and our own in its place. Nothing in here is looked up by that one. NULL: a pooler answers.
select pg_catalog.current_setting('search_path'),
       case when pg_catalog.pg_backend_pid() operator(pg_catalog.=) %(pid)s::pg_catalog.int4
            then pg_catalog.set_config('search_path', %(path)s, false) end
