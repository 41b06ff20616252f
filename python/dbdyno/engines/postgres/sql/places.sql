-- The server's data directory, where this role may see it, and its tablespaces. An empty location is in the data
-- directory, a relative one below it. temporary: the server writes temporary files there.
with temporary as (
    select pg_catalog.string_to_array(
               pg_catalog.regexp_replace(reset_val, '[" ]', '', 'g'), ',') as names
    from pg_catalog.pg_settings where name = 'temp_tablespaces'
)
select null as tablespace, s.setting as path, false as temporary
from pg_catalog.pg_settings as s where s.name = 'data_directory'
union all
(select t.spcname, pg_catalog.pg_tablespace_location(t.oid), t.spcname = any (temporary.names)
 from pg_catalog.pg_tablespace as t, temporary
 where t.spcname not in ('pg_default', 'pg_global')
 order by t.oid limit ${most})
