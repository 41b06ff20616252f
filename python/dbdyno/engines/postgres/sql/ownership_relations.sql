-- Differences of these relations of a schema, and of the partitions that the loader makes of them, from relations
-- that dbdyno makes.
-- Trusted are the role that logged in (a database may be set to begin with another role) and superusers;
-- pg_database_owner (oid 6171) is the owner of this database.
-- scope: kind; owner; code (runs with the rights of whoever uses the table); link (another object that is dropped
-- or changed with it); rows (others see it when the rows are replaced). trusted: whether those who can cause it are
-- trusted.
with recursive trusted (id) as (
    select oid from pg_roles where rolsuper or rolname = session_user
    union all
    select 6171::oid
    from pg_database as d join pg_roles as r on r.oid = d.datdba
    where d.datname = current_database() and (r.rolsuper or r.rolname = session_user)
),
named as (
    select c.oid, c.relname::text as name, c.relowner, c.relkind, c.relrowsecurity, c.relnamespace
    from pg_class as c join pg_namespace as n on n.oid = c.relnamespace
    where n.nspname = %(schema)s::name and c.relname = any(%(names)s::name[])
),
tables as (
    select * from named
    union all
    select p.oid, p.relname::text, p.relowner, p.relkind, p.relrowsecurity, p.relnamespace
    from named as n
         join pg_inherits as i on i.inhparent = n.oid and n.relkind = 'p'
         join pg_class as p on p.oid = i.inhrelid and p.relnamespace = n.relnamespace and p.relkind = 'r'
    where p.relname::text ~ ('^' || n.name || '_[1-9][0-9]{0,4}$')
          and substr(p.relname::text, length(n.name) + 2)::bigint <= coalesce(
              %(partitions)s::bigint, (select count(*) from pg_inherits as a where a.inhparent = n.oid))
),
-- Statements without ONLY also run on all children, so code of these runs too.
below (name, id) as (
    select name, oid from named
    union
    select b.name, i.inhrelid from below as b join pg_inherits as i on i.inhparent = b.id
),
reached (oid, name, relowner, relkind, child, whose) as (
    select oid, name, relowner, relkind, null, '' from tables
    union all
    select c.oid, b.name, c.relowner, c.relkind, c.oid::regclass::text, ' of its child ' || c.oid::regclass::text
    from below as b join pg_class as c on c.oid = b.id
    where c.oid not in (select oid from tables)
),
-- Expressions and types: stored with the table, evaluated with the rights of whoever reads or changes rows.
parts (id, name, relowner, class, object, what, written) as (
    select t.oid, t.name, t.relowner, 'pg_attrdef'::regclass::oid, d.oid, 'a default' || t.whose, true
    from reached as t join pg_attrdef as d on d.adrelid = t.oid
    union all
    select t.oid, t.name, t.relowner, 'pg_constraint'::regclass::oid, k.oid, 'the constraint ' || quote_ident(k.conname) || t.whose,
           k.contype = 'c'
    from reached as t join pg_constraint as k on k.conrelid = t.oid and k.contype in ('c', 'x')
    union all
    select t.oid, t.name, t.relowner, 'pg_class'::regclass::oid, i.indexrelid, 'the index ' || i.indexrelid::regclass::text || t.whose,
           i.indexprs is not null or i.indpred is not null
    from reached as t join pg_index as i on i.indrelid = t.oid
    union all
    select t.oid, t.name, t.relowner, 'pg_statistic_ext'::regclass::oid, s.oid, 'the statistics ' || quote_ident(s.stxname) || t.whose,
           s.stxexprs is not null
    from reached as t join pg_statistic_ext as s on s.stxrelid = t.oid
    union all
    select t.oid, t.name, t.relowner, 'pg_trigger'::regclass::oid, g.oid, 'the trigger ' || quote_ident(g.tgname) || t.whose, true
    from reached as t join pg_trigger as g on g.tgrelid = t.oid and not g.tgisinternal
    union all
    select t.oid, t.name, t.relowner, 'pg_rewrite'::regclass::oid, r.oid, 'the rule ' || quote_ident(r.rulename) || t.whose, true
    from reached as t join pg_rewrite as r on r.ev_class = t.oid and t.relkind in ('r', 'p')
    union all
    select t.oid, t.name, t.relowner, 'pg_policy'::regclass::oid, p.oid, 'the policy ' || quote_ident(p.polname) || t.whose, true
    from reached as t join pg_policy as p on p.polrelid = t.oid
    union all
    select t.oid, t.name, t.relowner, 'pg_class'::regclass::oid, t.oid, 'columns' || t.whose, false
    from reached as t
),
needed (class, object, owner) as (
    select 'pg_proc'::regclass::oid, oid, proowner from pg_proc
    union all select 'pg_operator'::regclass::oid, oid, oprowner from pg_operator
    union all select 'pg_type'::regclass::oid, oid, typowner from pg_type
    union all select 'pg_opclass'::regclass::oid, oid, opcowner from pg_opclass
    union all select 'pg_collation'::regclass::oid, oid, collowner from pg_collation
),
differences (name, scope, what, trusted) as (
    select name, 'kind',
           'is ' || case relkind when 'v' then 'a view' when 'm' then 'a materialized view' when 'f' then 'a foreign table'
                         when 'S' then 'a sequence' when 'i' then 'an index' else 'no table' end,
           relowner in (select id from trusted)
    from tables where relkind not in ('r', 'p')
    union all
    select name, 'owner', 'belongs to ' || quote_ident(pg_get_userbyid(relowner)), false
    from tables where relowner not in (select id from trusted)
    union all
    -- Its owner may replace a table between two of our statements.
    select t.name, 'owner',
           'is in schema ' || quote_ident(n.nspname) || ' of '
           || quote_ident(pg_get_userbyid(case when n.nspowner = 6171 then d.datdba else n.nspowner end))
           || ', who can replace it',
           false
    from tables as t join pg_namespace as n on n.oid = t.relnamespace
         join pg_database as d on d.datname = current_database()
    where n.nspowner not in (select id from trusted)
          and (select rolsuper from pg_roles where rolname = session_user)
    union all
    select name, 'code', 'has row security', relowner in (select id from trusted) from tables where relrowsecurity
    union all
    -- Its owner may create a trigger at any time, as the owner of the table may.
    select r.name, 'code', 'has the child ' || r.child || ' of ' || quote_ident(pg_get_userbyid(r.relowner)), false
    from reached as r join named as n on n.name = r.name
    where r.child is not null and n.relowner in (select id from trusted) and r.relowner not in (select id from trusted)
    union all
    -- The owner of the foreign server chooses the user it connects as, and the table that is read.
    select r.name, 'code', 'has the foreign table ' || coalesce(r.child, r.name), r.relowner in (select id from trusted)
           and exists (select from pg_foreign_table as f join pg_foreign_server as v on v.oid = f.ftserver
                       where f.ftrelid = r.oid and v.srvowner in (select id from trusted))
    from reached as r where r.relkind = 'f'
    union all
    -- Whoever has the privilege TRIGGER on a table may create one, whose condition is evaluated.
    select p.name, 'code', 'has ' || p.what,
           p.relowner in (select id from trusted) and not exists (select from pg_trigger as g where g.oid = p.object and g.tgqual is not null)
    from parts as p
    where p.class in ('pg_trigger'::regclass, 'pg_rewrite'::regclass, 'pg_policy'::regclass)
    union all
    select t.name, 'code',
           'lets ' || case a.grantee when 0 then 'everybody' else quote_ident(pg_get_userbyid(a.grantee)) end || ' make triggers' || t.whose,
           false
    from reached as t join pg_class as c on c.oid = t.oid cross join aclexplode(c.relacl) as a
    where a.privilege_type = 'TRIGGER' and a.grantee not in (select id from trusted)
    union all
    select p.name, 'code', 'has ' || p.what || ' with an expression', false
    from parts as p
    where p.written and p.relowner not in (select id from trusted)
          and p.class not in ('pg_trigger'::regclass, 'pg_rewrite'::regclass, 'pg_policy'::regclass)
    union all
    select distinct p.name, 'code',
           'has ' || p.what || ' with the ' || pg_describe_object(k.refclassid, k.refobjid, 0) || ' of '
           || quote_ident(pg_get_userbyid(n.owner)),
           false
    from parts as p
         join pg_depend as k on k.classid = p.class and k.objid = p.object
         join needed as n on n.class = k.refclassid and n.object = k.refobjid
    where n.owner not in (select id from trusted)
    union all
    select t.name, 'link', 'has the child ' || i.inhrelid::regclass::text, true
    from tables as t join pg_inherits as i on i.inhparent = t.oid
    where i.inhrelid not in (select oid from tables)
    union all
    select t.name, 'link', 'is a child of ' || i.inhparent::regclass::text, true
    from tables as t join pg_inherits as i on i.inhrelid = t.oid
    where i.inhparent not in (select oid from tables)
    union all
    select t.name, 'link', 'has the sequence ' || k.objid::regclass::text, true
    from tables as t
         join pg_depend as k on k.refclassid = 'pg_class'::regclass and k.refobjid = t.oid and k.deptype = 'a'
              and k.classid = 'pg_class'::regclass
         join pg_class as s on s.oid = k.objid and s.relkind = 'S'
    union all
    select t.name, 'rows', 'is referred to by ' || k.conrelid::regclass::text || ' (' || quote_ident(k.conname) || ')', true
    from tables as t join pg_constraint as k on k.confrelid = t.oid and k.contype = 'f'
    where k.conrelid not in (select oid from tables) and k.conparentid = 0
    union all
    select t.name, 'rows', 'is published by ' || quote_ident(v.pubname), true
    from tables as t join pg_namespace as n on n.oid = t.relnamespace
         join pg_publication_tables as v on v.schemaname = n.nspname and v.tablename::text = t.name
)
select name, scope, what, trusted from differences order by name, scope, what
