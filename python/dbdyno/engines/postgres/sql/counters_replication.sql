-- How far replay is behind: of a standby its own (WAL received and not replayed; time since the commit replayed
-- last), of a primary that of the standby which is farthest behind. Where all is replayed and no delay is shown
-- any more, it is 0. NULL: there is none, or this role may not see it.
select greatest(there.bytes, 0) as replay_behind_bytes,
       case when there.bytes <= 0 and (here.standby or there.delay is null) then 0
            else 1e9 * extract(epoch from there.delay) end as replay_lag_ns
from (select pg_catalog.pg_is_in_recovery() as standby,
             case when pg_catalog.pg_is_in_recovery() then pg_catalog.pg_last_wal_receive_lsn()
                  else pg_catalog.pg_current_wal_lsn() end as lsn) as here
     left join lateral (
         select here.lsn - pg_catalog.pg_last_wal_replay_lsn() as bytes,
                pg_catalog.clock_timestamp() - pg_catalog.pg_last_xact_replay_timestamp() as delay
         where here.standby
         union all
         (select here.lsn - replay_lsn, replay_lag
          from pg_catalog.pg_stat_replication
          where not here.standby and replay_lsn is not null
          order by replay_lsn
          limit 1)
     ) as there on true
