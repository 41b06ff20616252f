-- Our connections must not be cut off, and get figures with all digits and times in a form that can be read, whatever the
-- role or the database is set to; one that loads tables may wait for others.
select pg_catalog.set_config(s.name, w.value, false)
from pg_catalog.pg_settings as s
     join (values ('statement_timeout', '0'), ('lock_timeout', '0'), ('idle_session_timeout', '0'),
                  ('idle_in_transaction_session_timeout', '0'), ('transaction_timeout', '0'),
                  ('extra_float_digits', '1'), ('DateStyle', 'ISO'), ('IntervalStyle', 'postgres')) as w (name, value)
     on w.name = s.name
