select setval(pg_get_serial_sequence('dbdyno.customers', 'customer_id'), (select max(customer_id) from dbdyno.customers))
