-- All orders of one in a thousand customers: it grows with the number of customers, on purpose.
\set customer random(1, 4995 * :scale)
select o.order_id, o.status, o.total, i.line, i.product_id, i.quantity
from dbdyno.orders as o
cross join lateral (select line, product_id, quantity from dbdyno.items where order_id = o.order_id offset 0) as i
where o.customer_id between :customer and :customer + 5 * :scale - 1;
