-- Ten products of a category, from a random one on, and what one warehouse has of them.
\set category random(0, 19)
\set first random(1, 700)
\set warehouse random(1, :warehouses)
select p.product_id, p.name, p.price, i.on_hand
from (
    select product_id, name, price from dbdyno.products
    where category = :category and product_id >= :first
    order by product_id limit 10
) as p
cross join lateral (
    select on_hand from dbdyno.inventories where warehouse_id = :warehouse and product_id = p.product_id offset 0
) as i;
