alter table dbdyno.micro_parts add primary key (id)
