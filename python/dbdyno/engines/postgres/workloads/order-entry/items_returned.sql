create index items_returned on dbdyno.items (order_id) where returned > 0
