-- A schema that dbdyno uses: its comment, and the owners of it and of the functions in it, unless these are the
-- current role or a superuser. No row if the schema does not exist.
with trusted (id) as (
    select oid from pg_roles where rolsuper or rolname = session_user
),
schema as (
    select oid, nspowner, coalesce(obj_description(oid, 'pg_namespace'), '') as comment
    from pg_namespace where nspname = %(schema)s::name
),
inside (what, owner) as (
    select 'the function ' || p.oid::regprocedure::text, p.proowner
    from pg_proc as p join schema as s on s.oid = p.pronamespace
    union all
    select 'the operator ' || o.oid::regoperator::text, o.oprowner
    from pg_operator as o join schema as s on s.oid = o.oprnamespace
    union all
    select 'the type ' || t.oid::regtype::text, t.typowner
    from pg_type as t join schema as s on s.oid = t.typnamespace
    where t.typrelid = 0 and not exists (select from pg_type as e where e.typarray = t.oid and e.typrelid <> 0)
)
select s.comment,
       case when s.nspowner not in (select id from trusted) then pg_get_userbyid(s.nspowner)::text end as owner,
       coalesce((select array_agg(i.what || ' of ' || quote_ident(pg_get_userbyid(i.owner)) order by i.what)
                 from inside as i where i.owner not in (select id from trusted)), '{}') as code
from schema as s
