create table dbdyno.micro_copied (id bigint not null, text text not null)
