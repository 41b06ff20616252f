create index orders_waiting on dbdyno.orders (warehouse_id, order_id) where status = 0
