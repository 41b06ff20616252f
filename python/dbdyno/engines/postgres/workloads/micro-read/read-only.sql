\set id1 random(1, 200000)
\set id2 random(1, 200000)
\set id3 random(1, 200000)
\set id4 random(1, 200000)
\set id5 random(1, 200000)
\set id6 random(1, 200000)
\set id7 random(1, 200000)
\set id8 random(1, 200000)
\set id9 random(1, 200000)
\set id10 random(1, 200000)
\set first random(1, 200000 - 99)
begin;
select text from dbdyno.micro_rows where id = :id1;
select text from dbdyno.micro_rows where id = :id2;
select text from dbdyno.micro_rows where id = :id3;
select text from dbdyno.micro_rows where id = :id4;
select text from dbdyno.micro_rows where id = :id5;
select text from dbdyno.micro_rows where id = :id6;
select text from dbdyno.micro_rows where id = :id7;
select text from dbdyno.micro_rows where id = :id8;
select text from dbdyno.micro_rows where id = :id9;
select text from dbdyno.micro_rows where id = :id10;
select text from dbdyno.micro_rows where id between :first and :first + 99;
select sum(amount) from dbdyno.micro_rows where id between :first and :first + 99;
select text from dbdyno.micro_rows where id between :first and :first + 99 order by text;
select distinct group_id from dbdyno.micro_rows where id between :first and :first + 99 order by group_id;
commit;
