"""Units of compilation: kernels that are compiled together, and their code for each target.

The plain kernels of a file are one unit, each instantiation of a template is one. A unit is
compiled when something first needs it for a target, once, however many threads ask.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from functools import cached_property

from dotcu import compile as compiler
from dotcu import settings
from dotcu.compile import CompileOptions, ObjectCode, Source, Target
from dotcu.errors import CompileError, KernelNotFound, LaunchError, SourceError
from dotcu.kernel import cuda
from dotcu.kernel.arguments import Plan, plan
from dotcu.kernel.config import KernelNeeds
from dotcu.kernel.locks import ForkSafeLock
from dotcu.kernel.signature import signature
from dotcu.simulator import Loaded, Program

Place = tuple[Target, bool]
"""What code is for: a target, and whether the simulator runs it."""

Owners = dict[tuple[str, Place], tuple["Unit", str]]
"""By variable and place, the unit whose copy kernels write, and the first of them."""

_BODY = re.compile(r"^[^\n]*\.(entry|func)\b([^{;]*)\{(.*?)^\}", re.MULTILINE | re.DOTALL)
"""A function's kind, head and body in PTX."""


class Code:
    """A unit's object code for one target, and what is loaded of it."""

    def __init__(self, unit: Unit, object_code: ObjectCode, place: Place) -> None:
        self.unit = unit
        self.object = object_code
        self._place = place
        self._claimed: set[str] = set()
        self._lock = ForkSafeLock()
        self._plans: dict[str, Plan] = {}
        self._needs: dict[str, KernelNeeds] = {}

    @cached_property
    def program(self) -> Program:
        """The PTX: headers and variables now, bodies when the simulator asks for them."""
        source = self.unit.source
        texts = {source.name: source.text} if source.path is None else {}
        return Program.parse(self.object.ptx, self.object.files, texts)

    def symbol(self, name: str) -> str:
        """The entry of a kernel.

        Raises:
            KernelNotFound: The code has none; it was left out by the preprocessor, say.
        """
        if name not in self.object.lowered:
            raise KernelNotFound(
                f"{self.unit.source.name} declares {name}, but the compiler does not see it for "
                f"{self.object.target}.\nIs it inside an #if? Pass the macro: load(..., define={{...}})."
            )
        return self.object.lowered[name]

    def plan(self, name: str) -> Plan:
        """How the arguments of a kernel are packed."""
        found = self._plans.get(name)
        if found is None:
            symbol = self.symbol(name)
            found = self._plans[name] = plan(
                signature(
                    name,
                    probe=self.object.signatures[name],
                    names=self.unit.parameter_names.get(name, ()),
                    entry=self.program.headers[symbol].params,
                )
            )
        return found

    def needs(self, name: str) -> KernelNeeds:
        """What a kernel takes of a multiprocessor."""
        found = self._needs.get(name)
        if found is None:
            symbol = self.symbol(name)
            resources, header = self.object.resources.get(symbol), self.program.headers[symbol]
            found = self._needs[name] = KernelNeeds(
                static_smem_bytes=resources.smem_bytes
                if resources
                else self.program.entry(symbol).smem_bytes,
                registers=resources.registers if resources else 0,
                max_threads=_product(header.required_threads or header.max_threads),
            )
        return found

    def claim(self, kernel: str) -> None:
        """Make sure that the variables which a kernel may write have no second copy in use.

        Raises:
            SourceError: Another unit's kernel runs with a copy of its own: writes would not meet.
        """
        if kernel in self._claimed:
            return
        for name in self.unit.shared:
            if self._uses(kernel, name):
                owner, user = self.unit.owners.setdefault((name, self._place), (self.unit, kernel))
                if owner is not self.unit:
                    raise SourceError(_split(self.unit.source.name, name, user, kernel))
        self._claimed.add(kernel)

    def _uses(self, kernel: str, variable: str) -> bool:
        """Whether a kernel names a variable, or a function does that it may call."""
        symbol = self.object.lowered.get("&" + variable)
        if symbol is None:
            return False
        entry, named = self.symbol(kernel), re.compile(rf"(?<![\w$]){re.escape(symbol)}(?![\w$])")
        functions = _BODY.findall(self.object.ptx)
        bodies = (
            body for kind, head, body in functions if kind == "func" or head.split("(")[0].strip() == entry
        )
        return any(named.search(body) for body in bodies)

    def variable_bytes(self, symbol: str) -> int:
        """The size of a variable."""
        return self.program.variables[symbol].size

    def loaded(self) -> Loaded:
        """The code in the simulator, with its variables as they were last written."""
        with self._lock:
            return self._loaded

    @cached_property
    def _loaded(self) -> Loaded:
        loaded = Loaded(self.program)
        for name, data in self.unit.contents.items():
            _store(loaded, self.object, name, data)
        return loaded

    def library(self) -> cuda.Library:
        """The code in the driver; opening it loads nothing onto a GPU yet."""
        with self._lock:
            return self._library

    @cached_property
    def _library(self) -> cuda.Library:
        data = self.object.cubin if self.object.cubin is not None else self.object.ptx.encode() + b"\0"
        return cuda.Library(self.unit.source.name, data, self._initial)

    def _initial(self) -> dict[str, bytes]:
        """What was written to the variables so far, by symbol."""
        lowered = self.object.lowered
        contents = self.unit.contents.items()
        return {lowered["&" + name]: data for name, data in contents if "&" + name in lowered}

    def write(self, name: str, data: bytes) -> None:
        """Write a variable in every copy that is loaded."""
        with self._lock:
            if "_loaded" in self.__dict__:
                _store(self._loaded, self.object, name, data)
            if "_library" in self.__dict__ and "&" + name in self.object.lowered:
                self._library.write(self.object.lowered["&" + name], data)


def _product(sizes: Sequence[int]) -> int:
    product = 1 if sizes else 0
    for size in sizes:
        product *= size
    return product


def _store(loaded: Loaded, object_code: ObjectCode, name: str, data: bytes) -> None:
    symbol = object_code.lowered.get("&" + name)
    if symbol in loaded.variables:
        variable = loaded.variables[symbol]
        variable[: len(data)] = memoryview(data)


def _split(source: str, variable: str, user: str, kernel: str) -> str:
    instances = dict.fromkeys(name.partition("<")[0] for name in (user, kernel) if "<" in name)
    shown = ", ".join(f'"{name}": [...]' for name in instances)
    return (
        f"{source}: {kernel} would get a copy of its own of the __device__ variable {variable}, which "
        f"{user} already uses: what one writes, the other would not see.\n"
        "Kernels that share a variable are compiled together: name the instantiations when you load.\n"
        f"Type: dotcu.load(..., instantiate={{{shown}}})"
    )


class Unit:
    """Kernels of one source that are compiled together.

    Attributes:
        names: Their name expressions.
        shared: Variables of the source that kernels may write.
        owners: Which unit's copy of those is in use; shared by all units of the module.
        contents: What was written to the module's variables; shared by all of its units.
    """

    def __init__(
        self,
        source: Source,
        options: CompileOptions,
        names: Sequence[str],
        *,
        parameter_names: Mapping[str, Sequence[str]],
        variables: Sequence[str] = (),
        shared: Sequence[str] = (),
        contents: dict[str, bytes] | None = None,
        owners: Owners | None = None,
    ) -> None:
        self.source = source
        self.options = options
        self.names = tuple(names)
        self.parameter_names = parameter_names
        self.variables = tuple(variables)
        self.shared = tuple(shared)
        self.contents = contents if contents is not None else {}
        self.owners = owners if owners is not None else {}
        self._lock = ForkSafeLock()
        self._codes: dict[Place, Code] = {}

    def code(self, target: Target, *, simulated: bool = False) -> Code:
        """The code for a target, compiled where it is not there yet."""
        found = self._codes.get((target, simulated))
        if found is None:
            with self._lock:
                found = self._codes.get((target, simulated))
                if found is None:
                    found = Code(self, self.build(target, simulated=simulated), (target, simulated))
                    self._codes[target, simulated] = found
        return found

    def codes(self) -> tuple[Code, ...]:
        """All code there is so far."""
        with self._lock:
            return tuple(self._codes.values())

    def build(self, target: Target, *, simulated: bool = False) -> ObjectCode:
        """Compile, leaving out plain names that the preprocessor has hidden from the compiler.

        Raises:
            SourceError: The source does not compile, or an instantiation is not possible.
        """
        names = (*self.names, *("&" + name for name in self.variables))
        try:
            return self._build(names, target, simulated)
        except SourceError:
            self._build((), target, simulated)  # where the source itself is at fault, this says how
            seen = [name for name in names if self._sees(name, target, simulated)]
            if len(seen) == len(names):
                raise
            return self._build(seen, target, simulated)

    def _sees(self, name: str, target: Target, simulated: bool) -> bool:
        try:
            self._build((name,), target, simulated)
        except (KernelNotFound, CompileError):
            if "<" in name:
                raise
            return False
        return True

    def _build(self, names: Sequence[str], target: Target, simulated: bool) -> ObjectCode:
        return compiler.build(
            self.source, options=self.options, target=target, names=names, simulated=simulated
        )


def target_of(index: int) -> Target:
    """What to compile for a GPU.

    Raises:
        LaunchError: Compiler, driver and GPU do not fit; says what does.
    """
    return _target_of(index, settings.current())


@functools.cache
def _target_of(index: int, now: settings.Settings) -> Target:
    chosen = compiler.toolchain.native_target(cuda.capability(index))
    if isinstance(chosen, compiler.Rejected):
        raise LaunchError(f"Nothing can be compiled for cuda:{index}. {chosen}")
    return chosen
