begin;
delete from dbdyno.micro_queue where id = (
    select id from dbdyno.micro_queue order by id limit 1 for update skip locked
) returning id, text;
commit;
