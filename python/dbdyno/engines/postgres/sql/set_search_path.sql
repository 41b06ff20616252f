select pg_catalog.set_config('search_path', %s, false)
