"""Whether this process may read a GPU's performance counters, and the ways out where it may not.

The driver's module lets administrators alone read them unless it is told otherwise. Source:
https://developer.nvidia.com/ERR_NVGPUCTRPERM
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dotcu import process

REFUSED = "ERR_NVGPUCTRPERM"
"""What ncu says where it may not."""

PARAMS, STATUS = Path("/proc/driver/nvidia/params"), Path("/proc/self/status")

_ADMIN_ONLY = re.compile(r"^RmProfilingAdminOnly: *(\d+)", re.MULTILINE)
_CAPABILITIES = re.compile(r"^CapEff:\s*([0-9a-f]+)", re.MULTILINE)
_USERS = re.compile(r"^Uid:\s*\d+\s+(\d+)", re.MULTILINE)
_SYS_ADMIN, _PERFMON = 21, 38  # Source: linux/capability.h; CAP_PERFMON counts since driver R565

_OPTIONS_FILE = "/etc/modprobe.d/nvidia-profiling.conf"
SYSTEM = tuple(map(Path, ("/usr/local/sbin", "/usr/sbin", "/sbin")))
"""Where an administrator's programs are, which a user's PATH need not have."""

_REBUILDS = (
    ("update-initramfs", "-u", "Debian, Ubuntu"),
    ("dracut", "-f", "Fedora, RHEL, SUSE"),
    ("mkinitcpio", "-P", "Arch"),
)
"""What puts the option into the image that the module may be loaded from at boot: a program, its option,
and systems that have it. Source: update-initramfs(8), dracut(8), mkinitcpio(8)."""


@dataclass(frozen=True, kw_only=True)
class Permission:
    """What the system says of the counters.

    Attributes:
        admin_only: Whether the driver lets administrators alone read them; None where it does not tell.
        capable: Whether this process has a capability that makes it one; None where that cannot be told.
        root: Whether it runs as root, which in a container need not have it.
    """

    admin_only: bool | None
    capable: bool | None
    root: bool

    @property
    def hopeless(self) -> bool:
        """Whether it makes no sense to try. As root it is tried: a sandbox may tell of itself wrongly."""
        return self.admin_only is True and self.capable is False and not self.root

    @property
    def told(self) -> str:
        """Why they cannot be read, for whom ncu was refused."""
        if self.admin_only is None:
            return f"the driver refuses it ({REFUSED})"
        if not self.admin_only:
            return f"the driver refuses it ({REFUSED}), though {PARAMS} has RmProfilingAdminOnly: 0"
        who = "root without CAP_SYS_ADMIN, as in a container" if self.root else "no administrator"
        return f"{PARAMS} has RmProfilingAdminOnly: 1, and this process is {who}"


def look() -> Permission:
    """Ask the system."""
    return judge(_text(PARAMS), _text(STATUS))


def judge(params: str, status: str) -> Permission:
    """What the two files mean. Pure; either may be empty."""
    admin_only, held, user = (
        pattern.search(text)
        for pattern, text in ((_ADMIN_ONLY, params), (_CAPABILITIES, status), (_USERS, status))
    )
    bits = int(held[1], 16) if held else 0
    return Permission(
        admin_only=int(admin_only[1]) != 0 if admin_only else None,
        capable=bool(bits >> _SYS_ADMIN & 1 or bits >> _PERFMON & 1) if held else None,
        root=user is not None and user[1] == "0",
    )


def ways_out(target: str, ncu: Path) -> tuple[str, ...]:
    """What to type to be let, once and for good."""
    again = shlex.join([sys.executable, "-m", "dotcu", "profile", target])
    path = f"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:{ncu.parent}"
    write = f"echo 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' | sudo tee {_OPTIONS_FILE}"
    return (
        f'once, as root; sudo has a PATH of its own, so with full paths:\n    sudo env "PATH=$PATH" {again}',
        f'so that sudo finds ncu by its name, a line for `sudo visudo`:\n    Defaults secure_path="{path}"',
        "\n    ".join(("for every user, from the next boot on:", write, *_rebuilds())),
        "in a container, unless its host has the option above:\n    docker run --cap-add=SYS_ADMIN ...",
    )


def _rebuilds() -> Iterator[str]:
    """The line that rebuilds the boot image here; where no program is found, one for each, to choose from."""
    lines = [(name, f"sudo {name} {option} && sudo reboot", who) for name, option, who in _REBUILDS]
    here = next((line for name, line, _ in lines if process.find(name, SYSTEM)), None)
    if here is not None:
        yield here
        return
    width = max(len(line) for _, line, _ in lines)
    yield "# then one of these, as the system has it"
    yield from (f"{line:{width}}  # {who}" for _, line, who in lines)


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
