-- The owner of a schema, if the current role is a superuser and the owner is not.
select o.rolname::text
from pg_namespace as n
     join pg_database as d on d.datname = current_database()
     join pg_roles as o on o.oid = case when n.nspowner = 6171 then d.datdba else n.nspowner end  -- pg_database_owner
     join pg_roles as me on me.rolname = session_user
where n.nspname = %(schema)s::name and me.rolsuper and not o.rolsuper and o.oid <> me.oid
