-- Standbys of this server, its slots that nobody reads, and its own lag if it is a standby itself.
with here as (
    select pg_catalog.pg_is_in_recovery() as standby,
           case when pg_catalog.pg_is_in_recovery()
                then coalesce(pg_catalog.pg_last_wal_receive_lsn(), pg_catalog.pg_last_wal_replay_lsn())
                else pg_catalog.pg_current_wal_lsn() end as lsn
)
select 'this standby' as what, null::int as pid, 'this server' as name, w.status as state, null as sync,
       (here.lsn - pg_catalog.pg_last_wal_replay_lsn())::float8 as replay_bytes, null::float8 as sent_bytes,
       null::float8 as write_lag, null::float8 as flush_lag,
       case when here.lsn = pg_catalog.pg_last_wal_replay_lsn() then 0
            else extract(epoch from pg_catalog.clock_timestamp() - pg_catalog.pg_last_xact_replay_timestamp())::float8
       end as replay_lag,
       null::float8 as kept_bytes
from here left join pg_catalog.pg_stat_wal_receiver as w on true
where here.standby
union all
select 'standby', r.pid, coalesce(nullif(r.application_name, ''), '?') || coalesce(' ' || pg_catalog.host(r.client_addr), ''),
       r.state, r.sync_state, (here.lsn - r.replay_lsn)::float8, (here.lsn - r.sent_lsn)::float8,
       extract(epoch from r.write_lag)::float8, extract(epoch from r.flush_lag)::float8,
       extract(epoch from r.replay_lag)::float8, null
from pg_catalog.pg_stat_replication as r cross join here
union all
select case when s.active then 'slot' else 'unused slot' end, s.active_pid, s.slot_name::text, s.wal_status, null, null, null,
       null, null, null, (here.lsn - s.restart_lsn)::float8
from pg_catalog.pg_replication_slots as s cross join here
limit ${limit}
