"""What a node writes to stderr: lines for people or for programs, which never quote data."""

from __future__ import annotations

import json
import logging
import sys
import time

log = logging.getLogger("hdcos")


class _JsonLines(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        line = {"at": record.created, "level": record.levelname.lower(), "message": record.getMessage()}
        if "at" in record.__dict__:
            line["place"] = record.__dict__["at"]
        if record.exc_info and record.exc_info[0] is not None:
            line["error"] = record.exc_info[0].__name__
        return json.dumps(line)


class _Lines(logging.Formatter):
    """Lines for people. An exception is named, its message and values are not shown: they might quote data."""

    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        place = f" at {record.__dict__['at']}" if record.__dict__.get("at") else ""
        return f"{at} {record.levelname.lower()} {record.getMessage()}{place}"


def log_to_stderr(form: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines() if form == "json" else _Lines())
    log.handlers[:] = [handler]
    log.setLevel(logging.INFO)
