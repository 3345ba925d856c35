"""`load()`: a source of kernels as an object with a kernel for each of its names."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import torch

from dotcu import compile as compiler
from dotcu.compile import CompileOptions, Declaration, ObjectCode, Source, Target
from dotcu.errors import DotcuError, KernelNotFound
from dotcu.kernel import templates
from dotcu.kernel.declared import by_name, declared, is_unknown, not_found
from dotcu.kernel.elements import spell_arguments
from dotcu.kernel.kernel import Kernel, overloaded
from dotcu.kernel.launch import default_place
from dotcu.kernel.locks import ForkSafeLock
from dotcu.kernel.state import Users
from dotcu.kernel.tracing import refuse_compiled
from dotcu.kernel.units import Unit

if TYPE_CHECKING:
    from dotcu.kernel.variable import Variable

_log = logging.getLogger("dotcu")

Define = Mapping[str, Any]
Instantiations = Mapping[str, Sequence[Any]]

made: WeakSet[Module] = WeakSet()
"""Every module that is still in use, for whoever has to know which files were read."""


class Module:
    """The kernels and variables of one source. Nothing is compiled before something needs it.

    Attributes:
        name: The source's file name, or what messages call it instead.
        source: Its text, and where it was read.
        options: How it is compiled.
        kernels: Every kernel by its qualified name; `module.k` is short for `module.kernels["k"]`.
        instantiate: The instantiations that a wheel must hold, by template.
    """

    def __init__(self, source: Source, options: CompileOptions, instantiate: Instantiations) -> None:
        self.source = source
        self.options = options
        self.name = source.shown or source.name
        self._lock = ForkSafeLock()
        self._contents: dict[str, bytes] = {}
        self._declared = declared(source, options)
        kernels = self._declared.kernels
        self._users = Users(self.name)
        self._late: set[str] = set()
        plain = [d for d in kernels if not d.template_parameters]
        templates_by_name = {d.name: d for d in kernels if d.template_parameters}
        self.instantiate = _read_instantiate(instantiate, templates_by_name, self.name)
        together = self.instantiate if self._declared.has_state else {}
        self._plain = self._unit_of(
            plain, [(templates_by_name[n], row) for n in together for row in together[n]]
        )
        self._units = [self._plain]
        self.kernels = Kernels(self, [self._kernel(d) for d in kernels])
        self._warn_of_hidden(kernels)
        made.add(self)
        self._instances: dict[tuple[str, tuple[str, ...]], Kernel] = {
            (name, row): Kernel(self, templates_by_name[name], self._plain, row)
            for name, rows in together.items()
            for row in rows
        }

    def _warn_of_hidden(self, kernels: Sequence[Declaration]) -> None:
        for name in (d.name for d in kernels):
            if hasattr(type(self), name) or name in vars(self) or name.startswith("_"):
                shown = f'module.kernels["{name}"]'
                _log.warning("%s: module.%s is not the kernel of that name: use %s", self.name, name, shown)

    def _unit_of(
        self, plain: Sequence[Declaration], instances: Sequence[tuple[Declaration, tuple[str, ...]]]
    ) -> Unit:
        """The plain kernels as one unit, with some instantiations."""
        names = [d.name for d in plain] + [templates.instance_name(*instance) for instance in instances]
        source = templates.with_headers(self.source, [text for _, row in instances for text in row])
        return self._unit([*plain, *(declaration for declaration, _ in instances)], source, names)

    def _unit(
        self,
        declarations: Sequence[Declaration],
        source: Source | None = None,
        names: Sequence[str] | None = None,
    ) -> Unit:
        names = names if names is not None else [d.name for d in declarations]
        return Unit(
            source if source is not None else self.source,
            self.options,
            names,
            parameter_names={name: d.parameter_names for name, d in zip(names, declarations, strict=False)},
            variables=self._declared.variables,
            constants=self._declared.constants,
            contents=self._contents,
            users=self._users,
            late=self._late,
        )

    def _kernel(self, declaration: Declaration) -> Kernel:
        return Kernel(self, declaration, None if declaration.template_parameters else self._plain)

    def instantiation(self, declaration: Declaration, values: Sequence[Any]) -> Kernel:
        """The kernel that a template gives for some arguments."""
        arguments = spell_arguments(declaration, values)
        key = (declaration.name, arguments)
        found = self._instances.get(key)
        if found is None:
            with self._lock:
                found = self._instances.get(key)
                if found is None:
                    found = self._instances[key] = self._instantiate(declaration, arguments)
        return found

    def _instantiate(self, declaration: Declaration, arguments: tuple[str, ...]) -> Kernel:
        unit = self._unit_of([], [(declaration, arguments)])
        self._units.append(unit)
        return Kernel(self, declaration, unit, arguments)

    def units(self) -> tuple[Unit, ...]:
        """The plain kernels' unit, and one for each instantiation so far."""
        with self._lock:
            return tuple(self._units)

    def __getattr__(self, name: str) -> Kernel:
        if name.startswith("_"):  # what Python asks of any object; kernels["_k"] is not such a question
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        if torch.compiler.is_dynamo_compiling():
            refuse_compiled(name)
        found = self.__dict__[name] = self.kernels[name]  # so that the next look is Python's own
        return found

    def __deepcopy__(self, memo: dict[int, Any]) -> Module:
        return self  # compiled code has no second copy

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.kernels]

    def __repr__(self) -> str:
        return f"<dotcu.Module {self.source.display!r}: {', '.join(self.kernels) or 'no kernels'}>"

    def missing(self, name: str) -> Kernel:
        """Look for a kernel that the scan of the text did not find, since a macro makes it, say.

        Raises:
            KernelNotFound: There is none; names those that there are, the nearest first.
            SourceError: The name is that of several kernels.
        """
        why = ""
        if name in self._declared.overloads:
            self._choose(name)
        elif self._lacks(name):
            why = self._discover(name)
        found = by_name(name, tuple(self.kernels.found))
        if found is not None:
            return self.kernels.found[found]
        names = list(self.kernels)
        raise KernelNotFound(f"{not_found(self.name, name, 'kernel', names)}{why}")

    def _choose(self, name: str) -> None:
        """Add the one kernel of a name that the preprocessor leaves, where the text has several.

        Raises:
            SourceError: It leaves several, or one is a template.
        """
        from dotcu.kernel import discovery

        lines = self._declared.overloads[name]
        found = discovery.kernel(default_place().code(self._plain), name)
        if found is None or found.template_parameters:
            raise overloaded(name, lines, self.name)
        self._add(replace(found, line=lines[0]))

    def _discover(self, name: str) -> str:
        """Add the kernels that the compiler sees and the scan does not; why it could not be asked."""
        from dotcu.kernel import discovery

        try:
            code = default_place().code(self._plain)
            for entry in discovery.entries(code):
                if entry not in self._declared.overloads:
                    self._add(Declaration(entry, (), (), 0))
            found = discovery.kernel(code, name) if self._lacks(name) else None
        except DotcuError as error:
            return f"\nThe compiler could not be asked: {error}"
        if found is not None:
            self._add(found)
        return ""

    def _lacks(self, name: str) -> bool:
        return is_unknown(name, tuple(self.kernels.found))

    def _add(self, declaration: Declaration) -> None:
        """Add a kernel that only the compiler sees; the code of the plain ones holds it."""
        with self._lock:
            if declaration.name not in self.kernels.found:
                self._late.add(declaration.name)
                self.kernels.found[declaration.name] = self._kernel(declaration)

    def compile(self, arch: str) -> ObjectCode:
        """Compile the plain kernels, and the instantiations named or used so far, for an architecture.

        Args:
            arch: `sm_90a` for a cubin and its PTX, `compute_80` for PTX alone.
        """
        used = [key for key, kernel in self._instances.items() if kernel.unit.codes()]
        named = [(name, row) for name, rows in self.instantiate.items() for row in rows]
        instances = [(self.kernels[name].declaration, row) for name, row in dict.fromkeys([*named, *used])]
        plain = [k.declaration for k in self.kernels.values() if k.declaration.name in self._plain.names]
        return self._unit_of(plain, instances).build(Target.parse(arch))

    def warm(self) -> None:
        """Compile and load every kernel, before a graph is captured, say.

        Plain kernels that the compiler sees, those named by `instantiate` and all instantiations so far,
        on every visible device; where there is none, in the simulator.

        Raises:
            CaptureError: A CUDA graph is being captured, and something is not loaded yet.
            LaunchError: This process was forked after CUDA was up.
        """
        for name, rows in self.instantiate.items():
            for row in rows:
                self.instantiation(self.kernels[name].declaration, row)
        for kernel in [*self.kernels.values(), *self._instances.values()]:
            if not kernel.is_template:
                with suppress(KernelNotFound):  # the preprocessor hides it: no launch can need it
                    kernel.warm()

    def variable(self, name: str) -> Variable:
        """A `__constant__` or `__device__` variable, to write.

        Raises:
            KernelNotFound: There is none of that name; names those that there are.
        """
        from dotcu.kernel.variable import Variable

        late = tuple(name[1:] for name in self._late if name.startswith("&"))
        names = (*self._declared.variables, *late)
        found = by_name(name, names)
        if found is None and is_unknown(name, names) and self._has_variable(name):
            found = name
        if found is None:
            raise KernelNotFound(not_found(self.name, name, "variable", names))
        return Variable(self, found)

    def _has_variable(self, name: str) -> bool:
        """Whether the compiler sees a variable that the scan does not."""
        from dotcu.kernel import discovery

        try:
            found = discovery.variable(default_place().code(self._plain), name)
        except DotcuError:
            return False
        if found:
            self._late.add("&" + name)
        return found

    @property
    def contents(self) -> dict[str, bytes]:
        """What was written to variables so far."""
        return self._contents


def _read_instantiate(
    asked: Instantiations,
    declarations: Mapping[str, Declaration],
    file: str,
) -> dict[str, tuple[tuple[str, ...], ...]]:
    read = {}
    for name, rows in asked.items():
        qualified = by_name(name, tuple(declarations))
        if qualified is None:
            raise KernelNotFound(not_found(file, name, "template", list(declarations)))
        tuples = [row if isinstance(row, tuple) else (row,) for row in rows]
        read[qualified] = tuple(spell_arguments(declarations[qualified], row) for row in tuples)
    return read


class Kernels(Mapping[str, Kernel]):
    """Every kernel of a module by its qualified name; a plain name will do where only one ends in it."""

    def __init__(self, module: Module, kernels: Sequence[Kernel]) -> None:
        self._module = module
        self.found = {kernel.name: kernel for kernel in kernels}

    def __getitem__(self, name: str) -> Kernel:
        found = self.found.get(name)
        if found is not None:
            return found
        qualified = by_name(name, tuple(self.found))
        return self.found[qualified] if qualified is not None else self._module.missing(name)

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self.found))

    def __len__(self) -> int:
        return len(self.found)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and by_name(name, tuple(self.found)) is not None

    def __repr__(self) -> str:
        return f"<kernels of {self._module.name}: {', '.join(self.found)}>"


def load(
    path: str | Path,
    *,
    include: Sequence[str | Path] = (),
    define: Define = {},  # noqa: B006 - never changed
    options: Sequence[str] = (),
    std: str = "c++17",
    debug: bool = False,
    instantiate: Instantiations = {},  # noqa: B006 - never changed
) -> Module:
    """Read a file of kernels. Nothing is compiled yet.

    Args:
        path: The `.cu` file; a relative one is taken from the caller's file.
        include: Folders for its headers; relative ones are taken from the caller's file too.
        define: Macros; None defines one without a value.
        options: More options for the compiler.
        std: The C++ standard.
        debug: Compile for cuda-gdb, without optimization.
        instantiate: For each template the arguments that a wheel must hold:
            `{"scale_add": [(torch.float32,), (torch.bfloat16,)]}`. Where kernels write a
            `__device__` variable, these are compiled together with the plain kernels and share it.

    Raises:
        SourceNotFound: There is no file that can be read.
        KernelNotFound: `instantiate` names a template that is not there.
    """
    source = compiler.read_source(path, include, beside=_caller_folder(), is_compiled=compiler.brought.covers)
    return Module(source, CompileOptions(std=std, define=define, options=options, debug=debug), instantiate)


def load_inline(
    source: str,
    *,
    include: Sequence[str | Path] = (),
    define: Define = {},  # noqa: B006 - never changed
    options: Sequence[str] = (),
    std: str = "c++17",
    debug: bool = False,
    instantiate: Instantiations = {},  # noqa: B006 - never changed
) -> Module:
    """Take kernels from a str; otherwise as `load`."""
    text = compiler.inline_source(source, include=include, beside=_caller_folder())
    return Module(text, CompileOptions(std=std, define=define, options=options, debug=debug), instantiate)


def _caller_folder() -> Path:
    """The folder of the file that called `load`; the working directory where it is in no file."""
    file = sys._getframe(2).f_globals.get("__file__")
    return Path(file).absolute().parent if file else Path.cwd()
