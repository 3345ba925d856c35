"""Units of compilation: kernels that are compiled together, and their code for each target.

The plain kernels of a file are one unit, each instantiation of a template is one. A unit is
compiled when something first needs it for a target, once, however many threads ask.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from dotcu import compile as compiler
from dotcu import settings, stopwatch
from dotcu.compile import CompileOptions, ObjectCode, Source, Target, brought
from dotcu.compile.brought import NOTHING, Missing, Wanted
from dotcu.errors import JitDisabled, KernelNotFound, LaunchError, SourceError, ToolchainError
from dotcu.kernel import cuda, state
from dotcu.kernel.arguments import Plan, is_map, plan
from dotcu.kernel.config import KernelNeeds
from dotcu.kernel.locks import ForkSafeLock
from dotcu.kernel.signature import Signature, signature
from dotcu.kernel.state import Users
from dotcu.simulator import Outline, outline

if TYPE_CHECKING:
    from dotcu.kernel.map_uses import MapUse
    from dotcu.simulator import Loaded, Program

Place = tuple[Target, bool]
"""What code is for: a target, and whether the simulator runs it."""


class Code:
    """A unit's object code for one target, and what is loaded of it."""

    def __init__(self, unit: Unit, object_code: ObjectCode, place: Place) -> None:
        self.unit = unit
        self.object = object_code
        self._place = place
        self._claimed: set[str] = set()
        self._alone: dict[str, ObjectCode] = {}
        self._lock = ForkSafeLock()
        self._plans: dict[str, Plan] = {}
        self._needs: dict[str, KernelNeeds] = {}

    @cached_property
    def outline(self) -> Outline:
        """The headers and variables of the PTX."""
        with stopwatch.during("ptx"):
            return outline(self.object.ptx)

    @cached_property
    def program(self) -> Program:
        """The PTX as the simulator runs it: bodies are read when it asks for them."""
        from dotcu.simulator import Program

        source = self.unit.source
        texts = {source.display: source.text} if source.path is None else {}
        with stopwatch.during("ptx"):
            return Program(self.outline, self.object.files, texts)

    def symbol(self, name: str) -> str:
        """The entry of a kernel.

        Raises:
            KernelNotFound: The code has none; it was left out by the preprocessor, say.
        """
        found = self.object.lowered.get(name) or self._about(name).lowered.get(name)
        if found is None:
            raise KernelNotFound(
                f"{self.unit.source.display} declares {name}, but the compiler does not see it for "
                f"{self.object.target}.\nIs it inside an #if? Pass the macro: load(..., define={{...}})."
            )
        return found

    def alone(self, name: str) -> ObjectCode:
        """What the compiler tells of one more name, for the same target.

        Raises:
            KernelNotFound: There is nothing of that name.
            CompileError: It is a template, say.
        """
        found = self._alone.get(name)
        if found is None:
            target, simulated = self._place
            found = self._alone[name] = self.unit.alone(name, target, simulated)
        return found

    def _about(self, name: str) -> ObjectCode:
        """What tells of a name: this code, or a look at what only the compiler sees."""
        known = name in self.object.lowered or name not in self.unit.late
        return self.object if known else self.alone(name)

    def plan(self, name: str) -> Plan:
        """How the arguments of a kernel are packed."""
        found = self._plans.get(name)
        if found is None:
            with stopwatch.during("ptx"):
                found = self._plans[name] = self._planned(name)
        return found

    def _planned(self, name: str) -> Plan:
        symbol = self.symbol(name)
        made = signature(
            name,
            probe=self._about(name).signatures[name],
            names=self.unit.parameter_names.get(name, ()),
            entry=self.outline.entries[symbol].params,
        )
        return plan(made, self._map_uses(name, made))

    def _map_uses(self, name: str, made: Signature) -> dict[int, MapUse]:
        """What a kernel does with its tensor maps, by index of their parameter."""
        maps = [parameter.index for parameter in made.parameters if is_map(parameter)]
        if not maps:
            return {}
        from dotcu.kernel.map_uses import map_uses

        symbol = self.symbol(name)
        params = self.outline.entries[symbol].params
        found = map_uses(self.object.ptx, symbol, [params[index].name for index in maps])
        return dict(zip(maps, found, strict=True))

    def needs(self, name: str) -> KernelNeeds:
        """What a kernel takes of a multiprocessor."""
        found = self._needs.get(name)
        if found is None:
            with stopwatch.during("ptx"):
                found = self._needs[name] = self._found_needs(name)
        return found

    def _found_needs(self, name: str) -> KernelNeeds:
        symbol = self.symbol(name)
        resources, header = self.object.resources.get(symbol), self.outline.entries[symbol]
        return KernelNeeds(
            static_smem_bytes=resources.smem_bytes if resources else self.outline.static_smem_bytes(symbol),
            registers=resources.registers if resources else 0,
            max_threads=_product(header.required_threads or header.max_threads),
            cluster=_dim(header.cluster),
        )

    def claim(self, kernel: str) -> None:
        """Make sure that the variables which a kernel uses have no second copy that matters.

        Raises:
            SourceError: Another unit's kernel runs with a copy of its own: writes would not meet.
        """
        if kernel in self._claimed:
            return
        with stopwatch.during("ptx"):
            names = self._device_variables
            used = state.uses(self.object.ptx, self.symbol(kernel), tuple(names)) if names else {}
        shown = {names[symbol]: writes for symbol, writes in used.items()}
        self.unit.users.claim(self._place, self.unit, kernel, shown)
        self._claimed.add(kernel)

    @cached_property
    def _device_variables(self) -> dict[str, str]:
        """The names of the variables in global memory by symbol; not of const ones and string literals."""
        declared = {self.variable_symbol(name): name for name in self.unit.variables}
        return {
            symbol: declared.get(symbol, symbol)
            for symbol, variable in self.outline.module_variables.items()
            if variable.space == "global"
            and not symbol.startswith("$")
            and declared.get(symbol, symbol) not in self.unit.constants
        }

    def variable_symbol(self, name: str) -> str | None:
        """The symbol of a variable; None where the compiler does not see it."""
        return self._about("&" + name).lowered.get("&" + name)

    def variable_bytes(self, name: str) -> int | None:
        """The size of a variable; None where the compiler does not see it."""
        symbol, about = self.variable_symbol(name), self._about("&" + name)
        if symbol is None:
            return None
        outlined = self.outline if about is self.object else outline(about.ptx)
        return outlined.module_variables[symbol].size

    def loaded(self) -> Loaded:
        """The code in the simulator, with its variables as they were last written."""
        with self._lock:
            return self._loaded

    @cached_property
    def _loaded(self) -> Loaded:
        from dotcu.simulator import Loaded

        loaded = Loaded(self.program)
        for symbol, data in self._initial().items():
            _store(loaded, symbol, data)
        return loaded

    def library(self) -> cuda.Library:
        """The code in the driver; opening it loads nothing onto a GPU yet."""
        with self._lock:
            return self._library

    @cached_property
    def _library(self) -> cuda.Library:
        data = self.object.cubin if self.object.cubin is not None else self.object.ptx.encode() + b"\0"
        names = {symbol: name for name, symbol in self.object.lowered.items()}
        return cuda.Library(self.unit.source.name, data, self._initial, names)

    def _initial(self) -> dict[str, bytes]:
        """What was written to the variables so far, by symbol."""
        found = {self.variable_symbol(name): data for name, data in self.unit.contents.items()}
        return {symbol: data for symbol, data in found.items() if symbol in self.outline.module_variables}

    def write(self, name: str, data: bytes) -> None:
        """Write a variable in every copy that is loaded."""
        symbol = self.variable_symbol(name)
        if symbol is None or symbol not in self.outline.module_variables:
            return
        with self._lock:
            if "_loaded" in self.__dict__:
                _store(self._loaded, symbol, data)
            if "_library" in self.__dict__:
                self._library.write(symbol, data)


def _dim(sizes: Sequence[int]) -> tuple[int, int, int] | None:
    if not sizes:
        return None
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z


def _product(sizes: Sequence[int]) -> int:
    product = 1 if sizes else 0
    for size in sizes:
        product *= size
    return product


def _store(loaded: Loaded, symbol: str, data: bytes) -> None:
    variable = loaded.variables[symbol]
    variable[: len(data)] = memoryview(data)


class Unit:
    """Kernels of one source that are compiled together.

    Attributes:
        names: Their name expressions.
        constants: Those variables of the source that no kernel writes.
        users: Which unit's copy of the others is in use; shared by all units of the module.
        contents: What was written to the module's variables; shared by all of its units.
        late: Names that only the compiler has seen, of kernels and `&variables`; shared too.
    """

    def __init__(
        self,
        source: Source,
        options: CompileOptions,
        names: Sequence[str],
        *,
        parameter_names: Mapping[str, Sequence[str]],
        variables: Sequence[str] = (),
        constants: Container[str] = (),
        contents: dict[str, bytes] | None = None,
        users: Users | None = None,
        late: set[str] | None = None,
    ) -> None:
        self.source = source
        self.options = options
        self.names = tuple(names)
        self.parameter_names = parameter_names
        self.variables = tuple(variables)
        self.constants = constants
        self.contents = contents if contents is not None else {}
        self.users = users if users is not None else Users(source.name)
        self.late = late if late is not None else set()
        self._lock = ForkSafeLock()
        self._codes: dict[Place, Code] = {}
        self._on_gpu: dict[int, Code | Missing] = {}

    def code(self, target: Target, *, simulated: bool = False) -> Code:
        """The code for a target: that which a wheel brought, else compiled where it is not there yet."""
        found = self._codes.get((target, simulated))
        if found is None:
            with self._lock:
                found = self._codes.get((target, simulated))
                if found is None:
                    found = Code(self, self._object(target, simulated), (target, simulated))
                    self._codes[target, simulated] = found
        return found

    def on_gpu(self, index: int) -> Code:
        """The code for a GPU of this machine.

        Raises:
            LaunchError: No wheel brought any that fits, and compiler, driver and GPU do not fit either.
        """
        found = self._on_gpu.get(index)
        if found is None:
            wanted = Wanted(capability=cuda.capability(index), driver=compiler.driver.version())
            made = brought.look(self.source, self.options, self.names, wanted)
            found = self._on_gpu[index] = self._kept(made) if isinstance(made, ObjectCode) else made
        if isinstance(found, Code):
            return found
        with _told_why_not_brought(found):
            target = target_of(index)
        return self.code(target)

    def _kept(self, made: ObjectCode) -> Code:
        with self._lock:
            place = made.target, False
            return self._codes.setdefault(place, Code(self, made, place))

    def _object(self, target: Target, simulated: bool) -> ObjectCode:
        made: ObjectCode | Missing = NOTHING
        if simulated or target.kind == "sm":
            wanted = Wanted(
                capability=(target.major, target.minor),
                driver=None if simulated else compiler.driver.version(),
                simulated=simulated,
                assembled=not simulated,
            )
            made = brought.look(self.source, self.options, self.names, wanted)
        with _told_why_not_brought(made):
            return made if isinstance(made, ObjectCode) else self.build(target, simulated=simulated)

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
        return compiler.build_visible(
            self.source, options=self.options, target=target, names=names, simulated=simulated
        )

    def alone(self, name: str, target: Target, simulated: bool) -> ObjectCode:
        """Compile for one name more, to learn what it is."""
        return compiler.build(
            self.source, options=self.options, target=target, names=(name,), simulated=simulated
        )


@contextmanager
def _told_why_not_brought(made: ObjectCode | Missing) -> Iterator[None]:
    """Add to the refusal to compile why nothing that a wheel brought would do."""
    try:
        yield
    except (JitDisabled, ToolchainError, LaunchError, SourceError) as error:
        if isinstance(made, Missing) and made.reasons:
            error.args = (f"{error}\nWhat a wheel brought cannot be used:{made}", *error.args[1:])
        raise


def target_of(index: int) -> Target:
    """What to compile for a GPU.

    Raises:
        LaunchError: Compiler, driver and GPU do not fit; says what does.
    """
    now, (asked, target) = settings.current(), _targets.get(index, (None, None))
    if target is None or asked is not now:
        target = _native_target(index)
        _targets[index] = now, target
    return target


def gpu_target(index: int) -> Target:
    """What to call machine code for a GPU, also where nothing here can compile it."""
    try:
        return target_of(index)
    except (LaunchError, ToolchainError):
        return Target("sm", *cuda.capability(index))


_targets: dict[int, tuple[settings.Settings, Target]] = {}


def _native_target(index: int) -> Target:
    with stopwatch.during("build"):
        chosen = compiler.toolchain.native_target(cuda.capability(index))
    if isinstance(chosen, compiler.Rejected):
        raise LaunchError(f"Nothing can be compiled for cuda:{index}. {chosen}")
    return chosen
