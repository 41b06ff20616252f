-- How this transaction reads: no long wait, and no plan that costs more than it gives. For it alone: behind a pooler
-- the session is somebody else's next.
select pg_catalog.set_config(name, value, true)
from (values ('lock_timeout', '1s'), ('statement_timeout', '10s'), ('idle_in_transaction_session_timeout', '60s'),
             ('jit', 'off'), ('max_parallel_workers_per_gather', '0')${more}) as l (name, value)
