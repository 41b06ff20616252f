-- How often each transaction that changes rows has been committed since the tables were loaded.
select script, count(action)
from unnest(array['register-customer', 'update-details', 'order-products', 'process-orders']) as script
left join dbdyno.log on action = script
group by script
