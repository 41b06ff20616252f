create table dbdyno.micro_documents (
    id bigint not null,
    source text not null, -- without the outer braces, which a template of the loader cannot have
    body jsonb generated always as (('{' || source || '}')::jsonb) stored
)
