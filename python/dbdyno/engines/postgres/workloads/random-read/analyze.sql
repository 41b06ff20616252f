analyze ${table}
