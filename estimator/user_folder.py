"""The folder of a user's own catalogs and calibration profiles. Imports nothing of the package."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Final

PROFILE_SUFFIX: Final = ".yaml"
PROFILES_VARIABLE: Final = "LLMCALC_PROFILES"  # a folder to use in place of the platform's


def user_folder() -> Path:
    """The per-user configuration folder; on Linux without platformdirs, whose import takes as long as a look-up."""
    if sys.platform == "linux":
        return _linux_folder(os.environ.get("XDG_CONFIG_HOME"), os.environ.get("HOME"))
    import platformdirs

    return platformdirs.user_config_path("llmcalc", appauthor=False)


@lru_cache(maxsize=8)  # every look-up of a name asks for it
def _linux_folder(configuration: str | None, _home: str | None) -> Path:
    return Path(configuration or os.path.expanduser("~/.config"), "llmcalc")


def profile_folder() -> Path:
    """Where profiles are kept: $LLMCALC_PROFILES, or the platform's place for a program's configuration."""
    given = os.environ.get(PROFILES_VARIABLE)
    return Path(given) if given else user_folder() / "profiles"


def profile_names() -> list[str]:
    """Names of the profiles that are there; one look at the folder."""
    with suppress(OSError):
        files = os.listdir(profile_folder())
        return sorted(file[: -len(PROFILE_SUFFIX)] for file in files if file.endswith(PROFILE_SUFFIX))
    return []
