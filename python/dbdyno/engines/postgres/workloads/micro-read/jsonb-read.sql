\set first random(1, 20000 - 1999)
select sum((body -> 'place' ->> 0)::int + (body ->> 'price')::int) from dbdyno.micro_documents
where id between :first and :first + 1999;
