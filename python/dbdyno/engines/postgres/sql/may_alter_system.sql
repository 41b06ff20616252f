-- Whether this role may ALTER SYSTEM SET this parameter. has_parameter_privilege exists since version 15.
select pg_catalog.has_parameter_privilege(%s, 'alter system')
