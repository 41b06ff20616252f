\set first random(1, 200000 - 49999)
select g.region, count(*) from dbdyno.micro_rows as r join dbdyno.micro_groups as g using (group_id)
where r.id between :first and :first + 49999 group by g.region;
