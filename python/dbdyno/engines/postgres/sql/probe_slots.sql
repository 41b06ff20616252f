-- Backend slots (max_connections, workers, WAL senders, auxiliary processes) and the bytes of a query text in each.
select sum(setting::bigint) filter (where name <> 'track_activity_query_size') + 40 as slots,
       max(setting::bigint) filter (where name = 'track_activity_query_size') as text_bytes
from pg_catalog.pg_settings
where name in ('max_connections', 'max_worker_processes', 'autovacuum_max_workers', 'max_wal_senders',
               'track_activity_query_size')
