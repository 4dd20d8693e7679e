"""Makes the database of the board out of a file of statements: make_board.py DATABASE STATEMENTS."""

import sqlite3
import sys

database, statements = sys.argv[1:]
connection = sqlite3.connect(database, isolation_level=None)
# The mode stays in the file: readers go on while somebody writes.
connection.execute("PRAGMA journal_mode = WAL")
with open(statements, encoding="utf-8") as script:
    connection.executescript("BEGIN;\n" + script.read() + "COMMIT;\n")
connection.execute("ANALYZE")
connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
connection.close()
