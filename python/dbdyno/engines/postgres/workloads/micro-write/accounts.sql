create table dbdyno.micro_accounts (
    id bigint not null,
    code integer not null,
    amount integer not null,
    text text not null
) with (fillfactor = 90)
