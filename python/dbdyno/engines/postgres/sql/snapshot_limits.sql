-- Limits of this transaction: no long wait, and no expensive plan. Only for this transaction, since behind a pooler
-- another client uses the session next.
select pg_catalog.set_config(name, value, true)
from (values ('lock_timeout', '1s'), ('statement_timeout', '10s'), ('idle_in_transaction_session_timeout', '60s'),
             ('jit', 'off'), ('max_parallel_workers_per_gather', '0')${more}) as l (name, value)
