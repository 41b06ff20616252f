-- The four orders of a warehouse that have waited longest; one in ten calls cancels the first of them, and its
-- items go back into stock. Orders that another session processes are passed over.
\set warehouse random(1, :warehouses)
\set cancel random(1, 10)
begin;
with taken as materialized (
    select order_id from dbdyno.orders where warehouse_id = :warehouse and status = 0
    order by order_id limit 4 for update skip locked
), done as (
    update dbdyno.orders as o set status = 1 from taken as t where o.order_id = t.order_id returning o.order_id
)
select coalesce(min(order_id), 0) as oldest from done \gset
\if :cancel = 1
update dbdyno.orders set status = 2 where order_id = :oldest;
update dbdyno.items set returned = quantity where order_id = :oldest;
update dbdyno.inventories as i set on_hand = i.on_hand + t.quantity from dbdyno.items as t
where t.order_id = :oldest and t.line = 1 and i.warehouse_id = :warehouse and i.product_id = t.product_id;
update dbdyno.inventories as i set on_hand = i.on_hand + t.quantity from dbdyno.items as t
where t.order_id = :oldest and t.line = 2 and i.warehouse_id = :warehouse and i.product_id = t.product_id;
update dbdyno.inventories as i set on_hand = i.on_hand + t.quantity from dbdyno.items as t
where t.order_id = :oldest and t.line = 3 and i.warehouse_id = :warehouse and i.product_id = t.product_id;
\endif
insert into dbdyno.log (action) values ('process-orders');
commit;
