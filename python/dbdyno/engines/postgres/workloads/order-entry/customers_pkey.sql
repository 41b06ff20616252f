alter table only dbdyno.customers add primary key (customer_id)
