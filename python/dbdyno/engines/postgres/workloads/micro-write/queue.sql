create table dbdyno.micro_queue (
    id bigint not null,
    text text not null
)
