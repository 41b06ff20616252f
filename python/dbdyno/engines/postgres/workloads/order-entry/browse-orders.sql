-- A customer's five latest orders with their items.
\set customer random(1, 5000 * :scale)
select o.order_id, o.status, o.total, i.line, i.product_id, i.quantity
from (
    select order_id, status, total from dbdyno.orders
    where customer_id = :customer order by order_id desc limit 5
) as o
cross join lateral (select line, product_id, quantity from dbdyno.items where order_id = o.order_id offset 0) as i;
