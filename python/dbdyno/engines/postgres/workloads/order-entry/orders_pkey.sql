alter table only dbdyno.orders add primary key (order_id)
