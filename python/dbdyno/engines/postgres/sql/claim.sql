-- Takes the lock of dbdyno in this database; advisory locks of one database are not seen from another.
select pg_catalog.pg_try_advisory_lock(${key})
