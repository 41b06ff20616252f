select setval(pg_get_serial_sequence('dbdyno.orders', 'order_id'), (select max(order_id) from dbdyno.orders))
