-- How this session reads: one view of everything, nothing written, no long wait, no plan that costs more than it gives.
select pg_catalog.set_config(name, value, false)
from (values ('lock_timeout', '1s'), ('statement_timeout', '10s'), ('idle_in_transaction_session_timeout', '60s'),
             ('default_transaction_isolation', 'repeatable read'), ('default_transaction_read_only', 'on'),
             ('default_transaction_deferrable', 'off'), ('jit', 'off'), ('max_parallel_workers_per_gather', '0')${more}
     ) as l (name, value)
