alter table dbdyno.items add primary key (order_id, line)
