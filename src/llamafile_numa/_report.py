"""The verdict of the program (`--numa-report`, `GET /numa`), typed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

SCHEMA = 1


@dataclass(frozen=True)
class Region:
    """Memory of one kind: weights, repack, kv, compute or other."""

    name: str
    bytes: int
    checked: int
    """Pages that were looked at: the sum of the other three."""
    on_node: int
    elsewhere: int
    not_resident: int
    """Reserved and not used yet, so nowhere."""


@dataclass(frozen=True)
class Threads:
    workers: int
    bound: int
    """Workers that run on the node only."""


@dataclass(frozen=True)
class Report:
    """What was seen once the model was loaded."""

    requested: str
    node: int | None
    """None: no node was chosen, so nothing was bound or looked at."""
    how: str
    """flag, env, confined, start-node or emptiest."""
    policy: str
    """bind, preferred, cpus-only or none."""
    policy_note: str
    """What is in the way, and what would mend it."""
    weights_mode: str | None
    """map, moved or copy."""
    threads: Threads
    regions: tuple[Region, ...]
    look_ms: float
    ok: bool | None
    """Nothing that was looked at is elsewhere, and every worker is bound. None without a node."""

    def __getitem__(self, region: str) -> Region:
        """The region of this name. Raises KeyError where there is none."""
        for one in self.regions:
            if one.name == region:
                return one
        raise KeyError(region)

    @classmethod
    def from_json(cls, text: str) -> Report:
        """Raises ValueError if the text is no report, or one of a newer kind."""
        read: Any = json.loads(text)
        if not isinstance(read, dict) or read.get("schema") != SCHEMA:
            raise ValueError(f"not a report of schema {SCHEMA}: {text[:80]!r}")
        return cls(
            requested=read["requested"],
            node=read["node"],
            how=read["how"],
            policy=read["policy"],
            policy_note=read["policy_note"],
            weights_mode=read["weights_mode"],
            threads=Threads(read["threads"]["workers"], read["threads"]["bound"]),
            regions=tuple(Region(**{key: one[key] for key in Region.__dataclass_fields__}) for one in read["regions"]),
            look_ms=read["look_ms"],
            ok=read["ok"],
        )
