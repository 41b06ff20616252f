-- Orders whose total is not the sum of their items.
select 'orders whose total differs from their items' as name, 0::bigint as expected, count(*) as found
from dbdyno.orders as o
left join (select order_id, sum(price * quantity) as total from dbdyno.items group by order_id) as i using (order_id)
where o.total is distinct from i.total
