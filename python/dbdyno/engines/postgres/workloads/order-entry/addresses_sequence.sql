select setval(pg_get_serial_sequence('dbdyno.addresses', 'address_id'), (select max(address_id) from dbdyno.addresses))
