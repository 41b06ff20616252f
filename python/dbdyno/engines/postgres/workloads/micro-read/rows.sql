create table dbdyno.micro_rows (
    id bigint not null,
    code bigint not null,
    group_id integer not null,
    amount integer not null,
    text text not null
)
