-- How this session reads: one view of everything, nothing written, no long wait, no plan that costs more than it gives.
select pg_catalog.set_config(l.name, l.value, false)
from (values ('default_transaction_isolation', 'repeatable read'), ('default_transaction_read_only', 'on'),
             ('default_transaction_deferrable', 'off'), ('statement_timeout', '10s'), ('lock_timeout', '1s'),
             ('idle_in_transaction_session_timeout', '60s'), ('stats_fetch_consistency', 'snapshot'),
             ('jit', 'off'), ('max_parallel_workers_per_gather', '0')) as l (name, value)
     join pg_catalog.pg_settings as s on s.name = l.name
