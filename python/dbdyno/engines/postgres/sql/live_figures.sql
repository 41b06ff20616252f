-- Header of the live view. Without pg_read_all_stats, backend_type and state of other users' sessions are NULL.
select d.transactions,
       b.sessions,
       b.hidden,
       b.active,
       b.idle_in_transaction,
       pg_catalog.current_setting('max_connections')::int as most_sessions
from (
    select sum(xact_commit + xact_rollback)::int8 as transactions
    from pg_catalog.pg_stat_database
    where ${database}
) as d
cross join (
    select count(*)::int as sessions,
           count(*) filter (where a.backend_type is null)::int as hidden,
           count(*) filter (where a.state in ('active', 'fastpath function call'))::int as active,
           count(*) filter (where a.state like 'idle in transaction%')::int as idle_in_transaction
    from pg_catalog.pg_stat_get_activity(null) as a
         left join pg_catalog.pg_database as o on o.oid = a.datid
    where (a.backend_type = 'client backend'
           or a.backend_type is null and a.datid is not null and coalesce(a.leader_pid, a.pid) = a.pid)
      and a.pid <> all (array[pg_catalog.pg_backend_pid(), ${control}])
      and a.application_name is distinct from ${observer}
      and ${session}
) as b
