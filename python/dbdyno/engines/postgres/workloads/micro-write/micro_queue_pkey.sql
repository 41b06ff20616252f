alter table only dbdyno.micro_queue add primary key (id)
