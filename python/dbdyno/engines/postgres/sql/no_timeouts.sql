-- Our connections must not be cut off, whatever the role or the database is set to; one that loads tables may wait for others.
select pg_catalog.set_config(name, '0', false) from pg_catalog.pg_settings
where name in ('statement_timeout', 'lock_timeout', 'idle_session_timeout', 'idle_in_transaction_session_timeout',
               'transaction_timeout')
