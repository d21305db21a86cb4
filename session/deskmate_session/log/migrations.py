"""The schema, step by step. Imported only when a step is due: sqlite-utils takes 76 ms to load.

A step that is released never changes. The read model's tables are the exception: they are made anew from
the events whenever their shape changes (`remake`).
"""

from sqlite_utils import Database
from sqlite_utils.migrations import Migrations

from deskmate_session.log import read_model

APPLICATION_ID = 0x44534B4D
"""`DSKM` in the file's header: this is a Deskmate log."""

steps = Migrations("events")


@steps()
def m001_events(db: Database) -> None:
    """The events, append-only by trigger."""
    db.conn.execute(f"pragma application_id = {APPLICATION_ID}")
    db.conn.execute("pragma user_version = 1")
    db.conn.execute(
        """
        create table events (
          seq integer primary key autoincrement,
          id text not null unique,
          session text not null,  -- '' for facts of the folder
          idx integer not null,
          type text not null,
          version integer not null,
          at integer not null,
          payload blob not null,
          digest blob not null,   -- SHA-256 of the plain payload
          cause text,
          prev blob not null,
          hash blob not null,
          debug_tag text,         -- outside the hash
          unique (session, idx)
        ) strict
        """
    )
    for what in ("update", "delete"):
        db.conn.execute(
            f"create trigger events_no_{what} before {what} on events"
            " begin select raise(abort, 'the log is append-only'); end"
        )
    # `insert or replace` deletes without telling the delete trigger.
    db.conn.execute(
        "create trigger events_no_replace before insert on events when exists (select 1 from events where"
        " seq = new.seq or id = new.id or (session = new.session and idx = new.idx))"
        " begin select raise(abort, 'the log is append-only'); end"
    )


@steps()
def m002_leases_and_checkpoints(db: Database) -> None:
    """Who runs a session, states to open from, and a read model that knows what waits."""
    db.conn.execute("pragma user_version = 2")
    db.conn.execute(
        """
        create table leases (
          root text primary key,  -- a session without parent; its sub-sessions run under the same lease
          epoch integer not null, -- rises with each taking
          owner text              -- null: released
        ) strict, without rowid
        """
    )
    db.conn.execute(
        """
        create table checkpoints (
          session text not null,
          seq integer not null,     -- the last event in it
          hash blob not null,       -- that event's chain hash
          schema integer not null,  -- version of the body's shape
          body blob not null,
          checksum blob not null,   -- SHA-256 of all the others
          primary key (session, seq)
        ) strict, without rowid
        """
    )
    db.conn.execute(
        "create table newest_checkpoint"
        " (session text primary key, seq integer not null) strict, without rowid"
    )
    remake(db)


def remake(db: Database) -> None:
    """Make the read model anew from the events."""
    for table in read_model.KEYS:
        db.conn.execute(f"drop table if exists {table}")
    for statement in read_model.SCHEMA:
        db.conn.execute(statement)
    read_model.rebuild(db.conn, db.conn)
