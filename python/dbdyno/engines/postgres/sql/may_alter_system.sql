-- Whether this role may ALTER SYSTEM SET this parameter: has_parameter_privilege came with 15.
select pg_catalog.has_parameter_privilege(%s, 'alter system')
