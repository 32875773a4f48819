"""The schema as numbered steps. A step that was released is never edited; a change is a new step at the end."""

from collections.abc import Callable

from sqlalchemy import Connection, text

from reforward.domain.errors import LedgerCorrupt

Migration = Callable[[Connection], None]
MIGRATIONS: list[Migration] = []


def migration(step: Migration) -> Migration:
    """Append a step; its number is its place."""
    MIGRATIONS.append(step)
    return step


@migration
def records(connection: Connection) -> None:
    """One append-only table: `seq` is the order of arrival, `id` covers `tag` and `body`."""
    key = "INTEGER PRIMARY KEY AUTOINCREMENT" if connection.dialect.name == "sqlite" else "BIGSERIAL PRIMARY KEY"
    connection.execute(
        text(
            f"CREATE TABLE records (seq {key}, id TEXT NOT NULL UNIQUE, tag TEXT NOT NULL, "
            "body TEXT NOT NULL, at TEXT NOT NULL)"
        )
    )
    connection.execute(text("CREATE INDEX records_by_tag ON records (tag, seq)"))


@migration
def append_only(connection: Connection) -> None:
    """The database itself refuses to change or delete a record."""
    if connection.dialect.name != "sqlite":
        return
    for verb in ("UPDATE", "DELETE"):
        connection.execute(
            text(
                f"CREATE TRIGGER records_no_{verb.lower()} BEFORE {verb} ON records "
                "BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END"
            )
        )


def migrate(connection: Connection) -> None:
    """Apply the steps that this database has not seen, inside the caller's transaction."""
    connection.execute(text("CREATE TABLE IF NOT EXISTS migrations (number INTEGER PRIMARY KEY, name TEXT NOT NULL)"))
    done = version(connection)
    if done > len(MIGRATIONS):
        raise LedgerCorrupt(f"the ledger has schema {done}, this reforward knows {len(MIGRATIONS)}; upgrade reforward")
    for number, step in enumerate(MIGRATIONS[done:], start=done + 1):
        step(connection)
        values = {"number": number, "name": step.__name__}
        connection.execute(text("INSERT INTO migrations (number, name) VALUES (:number, :name)"), values)


def version(connection: Connection) -> int:
    """Number of the last step that was applied."""
    return connection.execute(text("SELECT coalesce(max(number), 0) FROM migrations")).scalar_one()
