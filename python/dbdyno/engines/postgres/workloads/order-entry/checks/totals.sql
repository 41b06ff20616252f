-- Orders whose total is not the sum of their items: all that are new, all with returned items, and 2,000 of those that
-- were loaded, chosen at random.
with chosen as (
    select order_id from dbdyno.items where returned > 0 and order_id <= 25000 * ${scale}
    union
    select 1 + floor(random() * 25000 * ${scale})::bigint from generate_series(1, 2000)
), compared as (
    select o.total, i.total as expected
    from dbdyno.orders as o
    left join (
        select order_id, sum(price * quantity) as total from dbdyno.items
        where order_id > 25000 * ${scale} group by order_id
    ) as i using (order_id)
    where o.order_id > 25000 * ${scale}
    union all
    select o.total, i.total
    from chosen as c
    left join dbdyno.orders as o using (order_id)
    cross join lateral (
        select sum(price * quantity) as total from dbdyno.items as i where i.order_id = c.order_id
    ) as i
)
select 'orders whose total differs from their items' as name, 0::bigint as expected, count(*) as found
from compared where total is null or total is distinct from expected
