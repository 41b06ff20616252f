alter table only dbdyno.items add primary key (order_id, line)
