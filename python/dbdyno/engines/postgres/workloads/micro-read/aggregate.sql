select group_id, count(*), sum(amount), max(amount) from dbdyno.micro_rows group by group_id;
