-- A plan for each call (extended protocol): six tables, hardly any rows.
\set id random(1, 200000)
select g.name, count(*) from dbdyno.micro_rows as a
join dbdyno.micro_rows as b on b.id = a.code
join dbdyno.micro_rows as c on c.id = b.code
join dbdyno.micro_documents as d on d.id = c.id % 20000 + 1
join dbdyno.micro_groups as g on g.group_id = a.group_id
join dbdyno.micro_groups as h on h.group_id = b.group_id
where a.id = :id group by g.name;
