alter table dbdyno.customers add primary key (customer_id)
