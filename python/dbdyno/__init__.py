"""dbdyno: a dynamometer for databases.

The way of the data, one way only::

    recipe -> plan -> cells -> conduct (drive + observe) -> store -> account -> conclude -> present

Each room is a package of this one; ``docs/concepts.md`` keeps the words, ``docs/schema.md`` the tables.
"""

__version__ = "0.1.0"
