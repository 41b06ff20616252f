create index orders_customer on dbdyno.orders (customer_id, order_id)
