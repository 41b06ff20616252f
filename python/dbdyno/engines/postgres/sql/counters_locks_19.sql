-- In milliseconds. Only waits longer than deadlock_timeout that got their lock, of all processes.
select sum(waits) as lock_waits, sum(wait_time) * 1e6 as lock_wait_ns
from pg_catalog.pg_stat_lock
