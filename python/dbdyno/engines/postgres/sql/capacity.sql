-- Limits on connections. Without pg_read_all_stats, backend_type of other users' sessions is NULL, but their
-- database is visible.
with backend as (
    select datid, usesysid
    from pg_catalog.pg_stat_get_activity(null)
    where backend_type = 'client backend' or backend_type is null and datid is not null
)
select pg_catalog.current_setting('max_connections')::int as maximum,
       pg_catalog.current_setting('superuser_reserved_connections')::int as superuser_reserved,
       coalesce(pg_catalog.current_setting('reserved_connections', true), '0')::int as reserved,
       r.rolsuper as superuser,
       exists (select from pg_catalog.pg_roles where rolname = 'pg_use_reserved_connections')
           and pg_catalog.pg_has_role(r.oid, (select oid from pg_catalog.pg_roles
                                              where rolname = 'pg_use_reserved_connections'), 'usage')
           as may_use_reserved,
       (select count(*) from backend)::int as in_use,
       r.rolconnlimit as role_limit,
       (select count(*) from backend where usesysid = r.oid)::int as role_in_use,
       d.datconnlimit as database_limit,
       (select count(*) from backend where datid = d.oid)::int as database_in_use
from pg_catalog.pg_roles as r, pg_catalog.pg_database as d
where r.rolname = session_user and d.datname = pg_catalog.current_database()
