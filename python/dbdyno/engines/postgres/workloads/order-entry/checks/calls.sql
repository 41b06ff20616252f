-- How often each transaction that changes rows has been committed since the tables were loaded.
select script, (select count(*) from dbdyno.log where action = script)
from unnest(array['register-customer', 'update-details', 'order-products', 'process-orders']) as script
