-- Orders whose total is not the sum of their items: all that are new, all with returned items, and 2,000 of those that
-- were loaded, chosen at random.
with chosen as (
    select order_id from dbdyno.orders where order_id > 25000 * ${scale}
    union
    select order_id from dbdyno.items where returned > 0
    union
    select 1 + floor(random() * 25000 * ${scale})::bigint from generate_series(1, 2000)
)
select 'orders whose total differs from their items' as name, 0::bigint as expected, count(*) as found
from chosen as c
left join dbdyno.orders as o using (order_id)
cross join lateral (
    select sum(price * quantity) as total from dbdyno.items as i where i.order_id = c.order_id
) as i
where o.total is null or o.total is distinct from i.total
