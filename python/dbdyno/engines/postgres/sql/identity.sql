-- Which cluster this is, whatever its address.
select system_identifier from pg_catalog.pg_control_system()
