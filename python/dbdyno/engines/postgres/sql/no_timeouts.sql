-- The control connection must not be cut off, whatever the role or the database is set to.
select pg_catalog.set_config(name, '0', false)
from pg_catalog.unnest(array['statement_timeout', 'lock_timeout', 'idle_session_timeout',
                             'idle_in_transaction_session_timeout']) as name
