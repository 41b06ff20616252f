-- Tables and functions in dbdyno's schema with their stamps, if owned by the current role or a superuser.
select o.kind, o.name, o.stamp
from (
    select 'table' as kind, c.relname::text as name, obj_description(c.oid, 'pg_class') as stamp, c.relowner as owner
    from pg_class as c
    where c.relnamespace = to_regnamespace('dbdyno') and c.relkind in ('r', 'p')
    union all
    select 'function', p.proname::text, obj_description(p.oid, 'pg_proc'), p.proowner
    from pg_proc as p
    where p.pronamespace = to_regnamespace('dbdyno')
) as o
join pg_roles as r on r.oid = o.owner and (r.rolsuper or r.rolname = session_user)
order by o.kind, o.name
