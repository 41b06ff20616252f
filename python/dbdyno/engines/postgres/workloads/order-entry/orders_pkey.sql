alter table dbdyno.orders add primary key (order_id)
