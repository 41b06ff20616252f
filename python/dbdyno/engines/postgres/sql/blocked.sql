-- Sessions that wait for a lock, and the sessions they wait for: one row per waiter and blocker. Reads the lock
-- table once for all waiters; pg_blocking_pids() would lock all its partitions for each. A waiter waits for the
-- holders of the lock in a conflicting mode, or if there are none, for the first waiter in one. Names of tables of
-- this database and of roles are looked up unless a catalogue is locked, as this query would wait for that.
with locks as materialized (
    select locktype, database, relation, page, tuple, virtualxid, transactionid, classid, objid, objsubid,
           virtualtransaction, pid, mode, granted, waitstart
    from pg_catalog.pg_lock_status()
    where mode <> 'SIReadLock'
),
kinds (mode, bit, conflicts) as (
    values ('AccessShareLock', 1, 128), ('RowShareLock', 2, 192), ('RowExclusiveLock', 4, 240),
           ('ShareUpdateExclusiveLock', 8, 248), ('ShareLock', 16, 236), ('ShareRowExclusiveLock', 32, 252),
           ('ExclusiveLock', 64, 254), ('AccessExclusiveLock', 128, 255)
),
wanted as materialized (
    select l.*, k.bit, k.conflicts,
           concat_ws('/', database, relation, page, tuple, virtualxid, transactionid, classid, objid, objsubid) as key
    from locks l join kinds k using (mode)
    where locktype in (select locktype from locks where not granted)
),
named as materialized (
    select not exists (select from locks where mode = 'AccessExclusiveLock' and granted and relation < 16384) as free
),
people as materialized (
    select a.pid, coalesce(a.leader_pid, a.pid) as leader, a.leader_pid, a.query_id,
           case
               when backend_type = 'client backend' then null
               when backend_type is not null then lower(backend_type)
               when coalesce(leader_pid, pid) <> pid then 'parallel worker'
               when datid is null then 'unknown'
           end as helper,
           case when backend_type is null and coalesce(leader_pid, pid) = pid then 'hidden' else state end as state,
           wait_event_type, wait_event, application_name, usesysid, datid
    from pg_catalog.pg_stat_get_activity(null) a
),
found as (
    select w.*, wp.leader_pid, h.pid as blocker, h.mode as blocker_mode, h.virtualtransaction as blocker_vxid,
           h.key is not null as blocked,
           rank() over (
               partition by w.pid, w.locktype, w.key
               order by h.granted desc nulls last, case when h.granted then 0 else 1 end,
                        case when not h.granted then h.waitstart < w.waitstart end desc nulls last,
                        case when not h.granted then h.waitstart end, case when not h.granted then h.pid end
           ) as place
    from wanted w
    left join people wp on wp.pid = w.pid
    left join (wanted h left join people hp on hp.pid = h.pid)
        on h.locktype = w.locktype and h.key = w.key and h.pid is distinct from w.pid
           and coalesce(hp.leader, h.pid) is distinct from coalesce(wp.leader, w.pid) and (h.bit & w.conflicts) <> 0
    where not w.granted and w.pid <> ${control}
),
held as (
    select f.pid, f.blocker, string_agg(distinct regexp_replace(l.relation::regclass::text, '^public\.', ''), ' or ') as tables
    from found f
    join locks l on l.pid = f.pid and l.locktype = 'relation' and l.relation >= 16384
        and l.mode in ('RowShareLock', 'RowExclusiveLock')
    join locks b on b.pid is not distinct from f.blocker and b.locktype = 'relation' and b.relation = l.relation
        and b.database = l.database
    where f.locktype in ('transactionid', 'spectoken') and (select free from named)
      and l.database = (select oid from pg_catalog.pg_database where datname = current_database())
      and (select relkind from pg_catalog.pg_class c where c.oid = l.relation) in ('r', 'p', 'm')
    group by f.pid, f.blocker
)
select f.pid,
       f.leader_pid,
       'Lock' as wait_class,
       f.locktype as wait_event,
       (extract(epoch from clock_timestamp() - f.waitstart) * 1e9)::bigint as waited_ns,
       f.mode,
       case
           when t.tuple is not null then format('row (%s,%s)', t.page, t.tuple)
           when f.locktype = 'advisory' then format('advisory lock %s, %s', f.classid, f.objid)
           when f.locktype = 'object' then format('object %s of catalogue %s', f.objid, f.classid)
           else f.locktype
       end as object,
       case
           when r.relation is null then h.tables
           when r.database not in (0, d.oid) then format('relation %s of database %s', r.relation, r.database)
           when n.free then regexp_replace(r.relation::regclass::text, '^public\.', '')
           else format('relation %s', r.relation)
       end as relation,
       case when f.blocked then coalesce(f.blocker, 0) end as blocker,
       f.blocker_mode,
       p.helper,
       case when f.blocked and f.blocker is null then 'prepared transaction' else p.state end as state,
       p.wait_event_type as blocker_wait_class,
       p.wait_event as blocker_wait_event,
       p.query_id,
       case when n.free then p.usesysid::regrole::text end as user,
       case when n.free then (select datname from pg_catalog.pg_database where oid = p.datid) end as database,
       case
           when f.blocked and f.blocker is null then (
               select x.gid
               from pg_catalog.pg_prepared_xact() x
               join locks l on l.locktype = 'transactionid' and l.transactionid = x.transaction
               where l.pid is null and l.virtualtransaction = f.blocker_vxid
               limit 1
           )
           else p.application_name
       end as application
from found f
cross join named n
left join pg_catalog.pg_database d on d.datname = current_database()
left join people p on p.pid = f.blocker
left join lateral (
    select page, tuple, relation, database from locks l
    where l.locktype = 'tuple' and l.pid = f.pid
    order by l.granted limit 1
) t on f.locktype in ('tuple', 'transactionid', 'spectoken')
left join lateral (
    select coalesce(f.relation, t.relation) as relation, coalesce(f.database, t.database) as database
) r on true
left join held h on h.pid = f.pid and h.blocker is not distinct from f.blocker
where f.place = 1
