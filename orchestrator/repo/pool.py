"""One copy on disk of the objects that many mirrors have, by hard links.

A pool is a folder beside the mirrors, with the layout of a git object database. Nothing leads from
a mirror to its pool: an object is simply a file with several names, read-only for everybody.
Mirrors whose readers must not meet (agent, evaluator) have different pools.
"""

import errno
import os
import threading
from pathlib import Path

NO_LINKS = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS})
"""What a file system says that has no hard links, or no more of them for this file."""


def share(objects: Path, pool: Path) -> int:
    """Make every loose object a hard link to the pool's file of the same name and bytes.

    What the pool does not have is added to it; what is damaged there is replaced. Any number of
    builders may do this at once, and one that is killed leaves at most an object that the next one
    uses. Where the file system has no hard links, the mirror keeps its own copies. Returns how many
    objects are shared now.
    """
    return sum(_share(stored, pool) for stored in sorted(objects.glob("??/*")))


def _share(stored: Path, pool: Path) -> bool:
    stored.chmod(0o444)
    pooled = pool / stored.parent.name / stored.name
    pooled.parent.mkdir(parents=True, exist_ok=True)
    try:
        if not _same(stored, pooled):
            _link_over(stored, pooled)
        else:
            _link_over(pooled, stored)
    except FileNotFoundError:  # pruned meanwhile: the mirror keeps its own
        return False
    except OSError as error:
        if error.errno in NO_LINKS:
            return False
        raise
    return True


def _same(one: Path, other: Path) -> bool:
    try:
        return one.read_bytes() == other.read_bytes()
    except FileNotFoundError:
        return False


def _link_over(source: Path, target: Path) -> None:
    """Make ``target`` a hard link to ``source``, in one step whatever was there."""
    aside = target.with_name(f".{target.name}.{os.getpid()}-{threading.get_ident()}")
    aside.unlink(missing_ok=True)
    os.link(source, aside)
    try:
        aside.replace(target)
    finally:  # renaming a link over another link to the same file leaves both
        aside.unlink(missing_ok=True)


def prune(pool: Path) -> int:
    """Remove what no mirror uses any more (one link, the pool's own) and what killed builders left.

    Returns how many files. Builders may be at work: one that loses its object keeps its own copy.
    """
    removed = 0
    for pooled in sorted(pool.glob("??/*")):  # names with a dot in front come first
        try:
            if pooled.name.startswith(".") or pooled.stat().st_nlink == 1:
                pooled.unlink()
                removed += 1
        except FileNotFoundError:
            continue
    return removed
