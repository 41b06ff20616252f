-- Rows of stock that are not what was there at first, less what was ordered since, plus what came back.
with sold as (
    select o.warehouse_id, t.product_id, sum(t.quantity) as quantity
    from dbdyno.orders as o join dbdyno.items as t using (order_id)
    where o.order_id > 25000 * ${scale} group by 1, 2
), returned as (
    select o.warehouse_id, t.product_id, sum(t.returned) as quantity
    from dbdyno.orders as o join dbdyno.items as t using (order_id)
    where t.returned > 0 group by 1, 2
)
select 'rows of stock that differ' as name, 0::bigint as expected, count(*) as found
from dbdyno.inventories as i
left join sold as s using (warehouse_id, product_id)
left join returned as r using (warehouse_id, product_id)
where i.on_hand <> i.initial - coalesce(s.quantity, 0) + coalesce(r.quantity, 0)
