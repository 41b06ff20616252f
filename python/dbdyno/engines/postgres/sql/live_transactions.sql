-- Open transactions, prepared ones, and replication slots that keep old rows. Ages of xmin are in transactions.
with oldest as (
    select max(age) as age
    from (
        select pg_catalog.age(backend_xmin) as age from pg_catalog.pg_stat_get_activity(null)
        union all
        select pg_catalog.age(transaction) from pg_catalog.pg_prepared_xact()
        union all
        select pg_catalog.age(xmin) from pg_catalog.pg_get_replication_slots()
        union all
        select pg_catalog.age(catalog_xmin) from pg_catalog.pg_get_replication_slots()
    ) as ages
),
held as (
    select a.pid,
           pg_catalog.pg_get_userbyid(a.usesysid)::text || '@' || coalesce(d.datname::text, '?') as who,
           nullif(a.application_name, '') as application,
           extract(epoch from pg_catalog.clock_timestamp() - a.xact_start)::float8 as age,
           a.state,
           case when a.state like 'idle%'
                then extract(epoch from pg_catalog.clock_timestamp() - a.state_change)::float8 end as idle,
           coalesce(pg_catalog.age(a.backend_xmin), pg_catalog.age(a.backend_xid)) as xmin_age,
           pg_catalog.age(a.backend_xmin) as keeps,
           a.wait_event_type || '/' || a.wait_event as event,
           pg_catalog.left(a.query, 10000) as statement
    from pg_catalog.pg_stat_get_activity(null) as a
         left join pg_catalog.pg_database as d on d.oid = a.datid
    where a.xact_start is not null
      and a.pid <> all (array[pg_catalog.pg_backend_pid(), ${control}])
      and a.application_name is distinct from ${observer}
    union all
    select null, pg_catalog.pg_get_userbyid(p.ownerid)::text || '@' || coalesce(d.datname::text, '?'), p.gid,
           extract(epoch from pg_catalog.clock_timestamp() - p.prepared)::float8, 'prepared', null,
           pg_catalog.age(p.transaction), pg_catalog.age(p.transaction), null, null
    from pg_catalog.pg_prepared_xact() as p
         left join pg_catalog.pg_database as d on d.oid = p.dbid
    union all
    select s.active_pid, 'replication slot', s.slot_name::text, null, case when s.active then 'in use' else 'unused' end,
           null, greatest(pg_catalog.age(s.xmin), pg_catalog.age(s.catalog_xmin)),
           greatest(pg_catalog.age(s.xmin), pg_catalog.age(s.catalog_xmin)), null, null
    from pg_catalog.pg_get_replication_slots() as s
    where s.xmin is not null or s.catalog_xmin is not null
)
select h.pid, h.who, h.application, h.age, h.state, h.idle, h.xmin_age, coalesce(h.keeps = o.age, false) as oldest,
       h.event, h.statement
from held as h cross join oldest as o
order by h.age desc nulls first
limit ${limit}
