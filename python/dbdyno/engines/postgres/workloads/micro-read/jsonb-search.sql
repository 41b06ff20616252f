\set tag random(0, 999)
select id, body ->> 'price' from dbdyno.micro_documents where body @> jsonb_build_object('tag', :tag::int);
