-- What is asked before the server's cache is read: the extension that shows it, and what of it this role may
-- call, for a refusal would be an error in the server's log. A setting that this version has not is NULL.
select pg_catalog.current_setting('block_size')::bigint as block_bytes,
       pg_catalog.pg_size_bytes(pg_catalog.current_setting('segment_size')) as segment_bytes,
       (select setting::bigint from pg_catalog.pg_settings where name = 'shared_buffers') as buffers,
       pg_catalog.to_regprocedure('pg_catalog.pg_numa_available()') is not null as knows_nodes,
       pg_catalog.current_setting('huge_pages') as huge_pages,
       pg_catalog.current_setting('huge_pages_status', true) as huge_pages_status,
       pg_catalog.pg_size_bytes(pg_catalog.current_setting('shared_memory_size', true)) as shared_memory_bytes,
       (select oid::bigint from pg_catalog.pg_database where datname = pg_catalog.current_database()) as database,
       pg_catalog.current_database()::text as database_name,
       pg_catalog.quote_ident(current_user) as role,
       (select rolsuper from pg_catalog.pg_roles where rolname = current_user) as superuser,
       e.oid is not null or exists (select from pg_catalog.pg_available_extensions() where name = 'pg_buffercache')
           as installed,
       pg_catalog.quote_ident(n.nspname) as schema,
       e.extversion as version,
       n.oid is not null and pg_catalog.has_schema_privilege(n.oid, 'usage') and not exists (
           select from pg_catalog.pg_depend as d
           where d.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass and d.refobjid = e.oid
             and (d.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass
                  and not pg_catalog.has_function_privilege(d.objid, 'execute')
                  and (select p.proname in ('pg_buffercache_pages', 'pg_buffercache_summary')
                       from pg_catalog.pg_proc as p where p.oid = d.objid)
                  or d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass
                  and not pg_catalog.has_table_privilege(d.objid, 'select')
                  and (select c.relname = 'pg_buffercache' from pg_catalog.pg_class as c where c.oid = d.objid))
       ) as permitted,
       pg_catalog.has_function_privilege('pg_catalog.pg_get_shmem_allocations()', 'execute') as may_see_memory
from (select) as one
left join pg_catalog.pg_extension as e on e.extname = 'pg_buffercache'
left join pg_catalog.pg_namespace as n on n.oid = e.extnamespace
