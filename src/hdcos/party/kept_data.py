"""Whose the data sets of a party are: who may train on them, which version is meant, and when they go.

A name is its owner's own: two owners may use the same, and OWNER/NAME says which is meant. A name alone is the
client's own data set, else the only one of that name that it may train on; where there are several it has to say.

    versions     uploading a name again makes a new version. Training takes the newest that both parties hold; jobs that
                 were begun with an older one keep it until they end, then it is removed
    expiry       a data set is kept for as many days as its owner or the operator said. Then nobody can begin to train
                 on it, and it is removed when the last job that uses it has ended
    rows of a job  that came with the call of a client go when the job ends, however it does, whether the client is
                 still there or not, and if no such job was begun in time

Security  every party decides for itself, by its own records, who may train on what: the other party's word is not taken
          for it. A client that may not use a data set learns that the name is in use, and nothing else.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Container
from datetime import UTC, datetime

from hdcos.checks import split_owned
from hdcos.errors import DataMissing, InputError, PeerLost, PolicyRefused
from hdcos.party.uploads import LIMITS, SILENT_S, StoredDataset, Uploads

log = logging.getLogger("hdcos")
DAY_S = 24 * 3600.0
ORPHAN_S = SILENT_S
"""Rows of a job that was not begun are kept that long: their client may have gone between the two."""
MOST_EXPIRED = 256
"""Data sets of one owner of which it is remembered that they expired: the last ones."""


class KeptData(Uploads):
    """The data sets of one party and their owners. Any thread may use it."""

    _unreachable = ""

    # ---- who may use them

    def grant(self, owner: str, name: str, client: str, most: int = LIMITS.grants) -> None:
        """Let another client train on a data set, in all its versions."""
        with self._changing() as database:
            (given,) = self._rows("SELECT count(*) FROM grants WHERE owner = ?", owner)[0]
            if given >= most and client not in self.allowed(owner, name):
                raise PolicyRefused(
                    f"{owner} has let clients train on its data sets {given} times, and may {most} times: {owner} "
                    f"forgets data sets that nobody needs (`hdcos forget`), or the operator allows more (grants in "
                    f"node.toml)"
                )
            database.execute("INSERT OR IGNORE INTO grants VALUES (?, ?, ?)", (owner, name, client))

    def allowed(self, owner: str, name: str) -> list[str]:
        """The clients that an owner lets train on a data set."""
        found = self._rows("SELECT client FROM grants WHERE owner = ? AND dataset = ? ORDER BY client", owner, name)
        return [str(row["client"]) for row in found]

    def may_train(self, dataset: StoredDataset, client: str) -> bool:
        """Whether a client may train on a data set: it is its own, or its owner said so."""
        return dataset.owner == client or (not dataset.job and client in self.allowed(dataset.owner, dataset.name))

    def find_dataset(
        self, reference: str, client: str, held: Container[tuple[str, str]] | None = None
    ) -> StoredDataset | None:
        """The newest version of what a client calls by this name, of those that are held by both parties; None if there
        is none yet. An error says why there will be none, and who can change that."""
        owner, name = split_owned(reference)
        named = [item for item in self.records(name) if owner in ("", item.owner)]
        usable = [item for item in named if item.complete and not item.expired and self.may_train(item, client)]
        chosen = [item for item in usable if item.owner == client and not owner] or usable
        owners = sorted({item.owner for item in chosen})
        if len(owners) > 1:
            choice = " or ".join(f"{each}/{name}" for each in owners)
            raise InputError(f"{len(owners)} owners have a data set called {name!r}: say which, {choice}")
        if not chosen:
            self._explain(reference, client, named)
        found = [item for item in chosen if held is None or item.key in held]
        return found[-1] if found else None

    def _explain(self, reference: str, client: str, named: list[StoredDataset]) -> None:
        """Raise what is known of a data set that cannot be used, unless it may still come."""
        owner, name = split_owned(reference)
        who = owner or "its owner"
        if any(item.complete and not self.may_train(item, client) for item in named):
            raise PolicyRefused(
                f"the owner of the data set {reference!r} did not allow {client} to train on it: {who} runs "
                f"`hdcos datasets {name} --allow {client}`"
            )
        gone = [(item.owner, item.expires) for item in named if item.expired]
        gone += [(row["owner"], row["at"]) for row in self._rows("SELECT owner, at FROM expired WHERE name = ?", name)]
        for known, at in gone:
            if owner in ("", known) and (known == client or client in self.allowed(known, name)):
                day = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d")
                raise DataMissing(
                    f"the data set {reference!r} expired on {day} and is gone: {known} uploads it again, with "
                    f"--keep-days for longer"
                )

    def expired_at(self, owner: str, name: str) -> float:
        """When the last version of a data set expired that was not uploaded again since; 0 if none did."""
        found = self._rows("SELECT at FROM expired WHERE owner = ? AND name = ?", owner, name)
        return float(found[0]["at"]) if found else 0.0

    # ---- when they go

    def in_use(self) -> set[tuple[str, str]]:
        """Names and versions that jobs were begun with which have not ended."""
        return set()

    def forget_dataset(self, name: str, owner: str | None = None) -> None:
        """Remove all versions of an owner's data set, and who was allowed to use it."""
        gone = [dataset for dataset in self.records(name) if owner in (None, dataset.owner)]
        with self._changing(needed=True) as database:
            for each in {dataset.owner for dataset in gone} | ({owner} if owner else set()):
                self._delete(database, "grants", owner=each, dataset=name)
                self._delete(database, "expired", owner=each, name=name)
        self.remove(gone)

    def finish_removing(self) -> int:
        removed = super().finish_removing()
        if removed:  # who may use what is there no more is nobody's business; what expired may be uploaded again
            with self._changing(heard=False, needed=True) as database:
                database.execute(
                    "DELETE FROM grants "
                    "WHERE NOT EXISTS (SELECT 1 FROM datasets AS d WHERE d.owner = grants.owner AND name = dataset) "
                    "AND NOT EXISTS (SELECT 1 FROM expired AS e WHERE e.owner = grants.owner AND name = dataset)"
                )
        return removed

    def forget_version(self, name: str, version: str) -> None:
        """Remove one version, which both parties have a newer one of."""
        self._remove_quietly([dataset for dataset in self.records(name) if dataset.version == version])

    def older_versions(self, held: Container[tuple[str, str]]) -> list[StoredDataset]:
        """Versions that a newer one, which both parties hold, has taken the place of and that no job uses."""
        used, newest, older = self.in_use(), set[str](), list[StoredDataset]()
        for dataset in reversed(self.records()):
            if dataset.title in newest and dataset.complete and dataset.key not in used:
                older.append(dataset)
            if dataset.complete and dataset.key in held:
                newest.add(dataset.title)
        return older

    def complete_dataset(self, dataset: StoredDataset, digest: str, number: int = 0) -> None:
        super().complete_dataset(dataset, digest, number)
        with self._changing() as database:  # that an earlier one expired is no news any more
            self._delete(database, "expired", owner=dataset.owner, name=dataset.name)

    def forget_rows_of(self, job: str) -> None:
        """Remove the rows that came with a job."""
        if rows := [dataset for dataset in self.records() if dataset.job == job]:
            self._remove_quietly(rows)

    def forget_outdated(self) -> None:
        """Remove data sets that have expired, and rows of jobs that were not begun in time."""
        known = self.records()
        gone = [item for item in known if item.expired]
        if gone:
            used, left = self.in_use(), {item.title for item in known if not item.expired}
            gone = [item for item in gone if item.key not in used]
            with self._changing() as database:
                for item in gone:
                    if item.title not in left:
                        self._insert(database, "expired", owner=item.owner, name=item.name, at=item.expires)
                for owner in {item.owner for item in gone}:
                    database.execute(
                        "DELETE FROM expired WHERE owner = ? AND name NOT IN "
                        "(SELECT name FROM expired WHERE owner = ? ORDER BY at DESC LIMIT ?)",
                        (owner, owner, MOST_EXPIRED),
                    )
            for item in gone:
                log.info("data set %s, version %d, has expired and is removed", item.title, item.number)
        orphans = {
            (row["name"], row["version"])
            for row in self._rows(
                "SELECT name, version FROM datasets WHERE job != '' AND complete AND created < ? "
                "AND job NOT IN (SELECT id FROM jobs)",
                time.time() - ORPHAN_S,
            )
        }
        self._remove_quietly(gone + [item for item in known if item.key in orphans])

    def _remove_quietly(self, gone: list[StoredDataset]) -> None:
        """Remove what nobody waits for; a place far away that does not answer is named once, and asked again later."""
        try:
            if gone:
                self.remove(gone)
            else:
                self.finish_removing()
            self._unreachable = ""
        except PeerLost as error:
            if str(error) != self._unreachable:
                log.warning("what is to be removed stays for now: %s", error)
            self._unreachable = str(error)

    def expires_after(self, days: float | None, most_days: float) -> float:
        """When what is uploaded now expires; 0 if it does not. An owner may say less than the operator does."""
        if days is not None and most_days and days > most_days:
            raise PolicyRefused(
                f"this party keeps data sets for {most_days:g} days at most, not {days:g}: say --keep-days "
                f"{most_days:g} or less, or ask its operator (keep_days in node.toml)"
            )
        kept = most_days if days is None else days
        return time.time() + kept * DAY_S if kept else 0.0
