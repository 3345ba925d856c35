"""Operators whose body launches kernels, operators that a library computes, and `dotcu.op`."""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakSet

import torch
from torch.compiler import is_dynamo_compiling
from torch.utils._pytree import tree_leaves, tree_map_only

from dotcu import torch_compat
from dotcu.errors import ArgumentError, ReferenceMismatch, UsageError
from dotcu.kernel import native, tracking_allocations
from dotcu.kernel.launch_policy import in_body
from dotcu.kernel.simulation import simulating_elsewhere
from dotcu.operator import autograd, execution, inductor, register, schema
from dotcu.operator.configurations import Configurations, Generator, When
from dotcu.operator.overload import Overload, Progress, Registered, Tolerance, warm
from dotcu.operator.samples import Sample, describe
from dotcu.operator.schema import OperatorBody
from dotcu.operator.sharding import Sharding
from dotcu.tracebacks import shorten


class LaunchingOverload(Overload):
    """One signature whose body launches kernels: on CUDA tensors, and in the simulator for CPU tensors.

    Attributes:
        tunable: Its configurations; None if it declares none.
        configuration: Returns the configuration of a call, for a body: `Configurations.of_call`.
    """

    body: OperatorBody
    tunable: Configurations | None
    configuration: Callable[..., Any]

    def __init__(
        self,
        body: OperatorBody,
        *,
        name: str,
        overload: str = "",
        dtypes: Sequence[torch.dtype],
        mutates_args: Sequence[str] = (),
        tags: Sequence[torch.Tag] = (),
        tolerance: Tolerance = None,
        base: LaunchingOperator | None = None,
    ) -> None:
        signature = schema.infer(body, name=name, overload=overload, mutates_args=mutates_args)
        registration = register.define(signature, register.Definition.of(body), tags)
        overloads = None if base is None else base.overloads
        super().__init__(registration, dtypes=dtypes, tolerance=tolerance, overloads=overloads)
        self.body = body
        self.tunable = None
        self.configuration = self._no_configuration
        self._base = base
        self._recorder = autograd.Recorder(signature, lambda: (self._backward, self._setup_context))
        self._above = autograd.kernel(registration.operator, self._recorder)
        self._native = self._native_calls()
        registration.implement("CUDA", self._on_cuda if self._native is None else self._native.compute)
        registration.implement("CPU", self._on_cpu)
        registration.implement_fake(self._on_fake)
        registration.implement("Autograd", self._on_autograd)
        if self._native is not None:
            registration.implement("AutogradCUDA", self._native.autograd)
        self.__name__ = body.__name__
        self.__module__ = body.__module__
        self.__doc__ = body.__doc__
        self.__wrapped__ = body

    @typing.overload
    def configurations(
        self, function: Generator, *, when: When | None = None, exact: bool | int = False
    ) -> Generator: ...

    @typing.overload
    def configurations(
        self, function: None = None, *, when: When | None = None, exact: bool | int = False
    ) -> Callable[[Generator], Generator]: ...

    def configurations(
        self, function: Generator | None = None, *, when: When | None = None, exact: bool | int = False
    ) -> Any:
        """Declare what `dotcu tune` chooses from: `function()` yields NamedTuples or frozen dataclasses.

        The body asks for one by `scale.configuration(x.dtype, n)`. The arguments are the facts of the call
        that matter: dtypes and text as they are, sizes rounded up to a power of two. It gets the tuned one
        of the nearest sizes; if none is tuned, the first that is declared. With `default=`, which a rule for
        all sizes gives, only an entry of the same sizes takes its place.

        Args:
            function: The generator; without it, returns a decorator.
            when: Takes a configuration and the arguments of `configuration`; returns whether they fit.
            exact: Sizes count as they are: where the best differs from one size to the next. A number for
                so many first sizes alone: 1 for the length of rows, whose count may be any near one.
        """
        if function is None:
            return partial(self.configurations, when=when, exact=exact)
        self.tunable = Configurations(self.qualified_name, self.body, function, when, exact=exact)
        self.configuration = self.tunable.of_call
        inductor.define_configured(self, self.body, self.tunable)
        return function

    def autotune_in_inductor(self, among: Iterable[Any] | None = None) -> None:
        """Let `torch.compile` choose the configuration: Inductor times them, and the fastest is in its graph.

        The choice holds for the shapes of a graph, in this process and in Inductor's cache.

        Args:
            among: Some of the configurations; by default the first, and those that `dotcu tune` chose for
                this GPU, or a relative of it. All of them where it chose none.

        Raises:
            UsageError: It declares none, or does not return one tensor.
            EnvironmentFault: This torch has no `register_custom_op_autotuning`.

        Note:
            Configurations that are not from the tuned file are not checked.
        """
        inductor.hand_over(self, self.tunable, among)

    def _no_configuration(self, *key: Any, default: Any = None) -> Any:
        raise UsageError(
            f"{self.qualified_name} asks for a configuration, and declares none.\n"
            f"Declare them below its body: @{self.__name__}.configurations"
        )

    def _native_calls(self) -> Any:
        """Return what takes calls without Python in between; None without the native part."""
        signature, name = self.signature, self.signature.qualified_name
        kinds, defaults = schema.kinds_of(self.torch_op._schema), schema.defaults_of(self.body)
        library = native.library()
        if library is None:
            return None
        calls = library.Operator(
            body=self.body,
            names=signature.arguments,
            kinds=kinds,
            positional=len(signature.arguments) - len(signature.keyword_only),
            returns=-1 if any(signature.lists) else signature.returns,
            on_autograd=self._on_autograd,
            on_compute=self._on_cuda,
            on_record=partial(self._recorder.record_call, self.torch_op),
            on_scope=partial(in_body, name),
            on_check=partial(execution.checked, signature),
            on_error=partial(execution.explain, name),
        )
        nested = (str(argument.real_type) for argument in self.torch_op._schema.arguments)
        if not any(signature.lists) and not any("Tensor" in text and "List" in text for text in nested):
            calls.record_by(self._recorder.of_plain_tensors(calls.compute, defaults))
        return calls

    def _on_autograd(self, *args: Any, **kwargs: Any) -> Any:
        register.implement_waiting_shardings()
        with torch_compat.keeping_autocast():
            try:
                return self._above(*args, **kwargs)
            except Exception as error:
                __tracebackhide__ = True
                shorten(error)
                raise error  # DOTCU_DEBUG=1 shows the frames of dotcu

    def _on_cuda(self, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = execution.plain(args), {name: execution.plain(value) for name, value in kwargs.items()}
        if execution.skipping():
            return self._on_fake(*args, **kwargs)
        native.prepare()
        return execution.compute(self.signature, self.body, args, kwargs)

    def _on_cpu(self, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = execution.plain(args), {name: execution.plain(value) for name, value in kwargs.items()}
        if execution.skipping():
            return self._on_fake(*args, **kwargs)
        reference = self.reference_function
        if reference is None or execution.simulating():
            # the simulator knows what the body allocates as uninitialized
            with tracking_allocations(), torch_compat.autocast_as_kept():
                return execution.compute(self.signature, self.body, args, kwargs)
        if simulating_elsewhere():
            execution.warn_of_thread(self.qualified_name)
        if self.functional is not None:
            outs = self.signature.outs
            inputs = {name: value for name, value in kwargs.items() if name not in outs}
            # before the body, which may overwrite an input that shares memory with an output
            values = reference(*args, **inputs)
            execution.allocate(self.signature, self.body, args, kwargs)  # for its checks
            self._fill([kwargs[name] for name in outs], values)
            return None
        if self.signature.mutates:
            reference(*args, **kwargs)  # it may return what it wrote, as x.mul_(a) does
            return None
        values = None
        try:
            allocated = execution.allocate(self.signature, self._fake or self.body, args, kwargs)
        except AttributeError:  # torch.library.get_ctx() is None outside of a trace: sizes depend on values
            if self._fake is None:
                raise
            values = reference(*args, **kwargs)
            new = tree_map_only(torch.Tensor, torch.empty_like, values)
            allocated = execution.checked(self.signature, new, args, kwargs)
        self._fill(allocated, reference(*args, **kwargs) if values is None else values)
        return allocated

    def _fill(self, into: Any, values: Any) -> None:
        """Copy a reference's values into tensors of the same structure."""
        targets, sources = _tensors(into), _tensors(values)
        same = len(targets) == len(sources) and all(
            isinstance(source, torch.Tensor) and source.shape == target.shape and source.dtype == target.dtype
            for target, source in zip(targets, sources, strict=True)
        )
        if not same:
            reference, body = (", ".join(map(describe, tensors)) for tensors in (sources, targets))
            raise ReferenceMismatch(
                f"{self.qualified_name}: the reference gives {reference}, the body gives {body}.\n"
                "Both must agree in number, shape and dtype: correct the one that is wrong."
            )
        for target, source in zip(targets, sources, strict=True):
            target.copy_(source)

    def _on_fake(self, *args: Any, **kwargs: Any) -> Any:
        tensors = [t for t in tree_leaves((args, kwargs)) if type(t) in (torch.Tensor, torch.nn.Parameter)]
        if len({tensor.is_meta for tensor in tensors}) > 1:  # torch would infer shapes, and run nothing
            got = ", ".join(f"{describe(tensor)} on {tensor.device}" for tensor in tensors)
            raise ArgumentError(
                f"{self.qualified_name} got tensors with memory and tensors without: {got}.\n"
                "All must be on one device; those on 'meta' have no values: x.to(device) cannot give them "
                "any."
            )
        if self._fake is not None:
            return self._fake(*args, **kwargs)
        return execution.allocate(self.signature, self.body, args, kwargs)

    def autocast(self, dtype: torch.dtype) -> Callable[[Registered], Registered]:
        decorator = super().autocast(dtype)
        self._choose_direct()
        return decorator

    def _choose_direct(self) -> None:
        """Let native code choose again among the overloads of the operator."""
        if self._base is not None:
            self._base._choose_direct()

    def __reduce__(self) -> str | tuple[Any, ...]:
        return self.__name__ if self._base is None else (_overload_of, (self._base, self.signature.overload))

    def __repr__(self) -> str:
        if execution.simulating() or self.reference_function is None:
            runs = "the body, in the simulator"
        else:
            runs = "the reference"
        slow = native.reason_for_python().partition("\n")[0]
        why = f"; every call goes through Python: {slow}" if slow else ""
        return f"<dotcu.op {self.signature}; on CPU tensors it runs {runs}{why}>"


def _tensors(value: Any) -> list[Any]:
    if isinstance(value, (tuple, list)):
        return [tensor for item in value for tensor in _tensors(item)]
    return [value]


def _overload_of(operator: LaunchingOperator, name: str) -> Overload:
    return operator.overloads[name]


class LaunchingOperator(LaunchingOverload):
    """A torch operator of a Python function that launches kernels.

    Calling it picks among its overloads by the arguments, as `torch.ops` does. A call that names
    `out=` returns `out`.
    """

    def __init__(
        self, body: OperatorBody, *, name: str, sharding: Sharding | None = None, **options: Any
    ) -> None:
        super().__init__(body, name=name, **options)
        self.overloads: dict[str, LaunchingOverload] = {"": self}
        self._direct: Any = None
        self._call: Any = register.packet(self.signature)
        self._choose_direct()
        _redirect_earlier(self)
        if sharding is not None:
            self.sharding(sharding)

    def overload(
        self, name: str, *, mutates_args: Sequence[str] = (), tags: Sequence[torch.Tag] = ()
    ) -> Callable[[OperatorBody], LaunchingOverload]:
        """Add another signature under the same name: `@scale_add.overload("Scalar")`.

        Args:
            name: The overload's name; `out` for one that writes its keyword-only arguments `mutates_args`.
            mutates_args: The arguments that it writes.
            tags: torch's tags for it.
        """

        if not name:
            raise UsageError(
                f"{self.qualified_name}.overload takes a name (got {name!r}).\n"
                f'Type: @{self.__name__}.overload("Scalar")'
            )

        def decorate(body: OperatorBody) -> LaunchingOverload:
            added = LaunchingOverload(
                body,
                name=self.signature.packet_name,
                overload=name,
                dtypes=self.dtypes,
                mutates_args=mutates_args,
                tags=tags,
                tolerance=self.tolerance,
                base=self,
            )
            self.overloads[name] = added
            register.refresh(self.signature)
            for each in self.overloads.values():
                each._call = each.torch_op
                if each.declared_sharding is not None:  # DTensor knows it by torch's object, which is new
                    each.register_sharding()
            self._call = register.packet(self.signature)
            self._choose_direct()
            _redirect_earlier(self)
            return added

        return decorate

    @property
    def is_in_force(self) -> bool:
        """True until the same name is defined again."""
        return register.is_live(self._registration)

    def warm(self, samples: Iterable[Sample] | None = None, *, progress: Progress | None = None) -> None:
        """Compile and load every kernel that the samples of the operator and of its overloads reach.

        An overload that writes what another returns, and has no samples, is called on those of that one.
        Otherwise as `Overload.warm`.

        Args:
            samples: Calls of this overload to make instead, on the devices of their tensors.
            progress: Is called with the number of compiles that are done, and of all.

        Raises:
            UsageError: An overload has no samples; the others are warm.
            CaptureError: A CUDA graph is being captured.
        """
        overloads = list(self.overloads.values()) if samples is None else [self]
        warm(overloads, self.signature.name, samples, progress)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        result = NotImplemented
        try:
            if self._direct is not None and not is_dynamo_compiling():
                result = self._direct(*args, **kwargs)
            if result is NotImplemented:
                result = self._dispatch(*args, **kwargs)
        except Exception as error:
            __tracebackhide__ = True
            shorten(error)
            raise error  # DOTCU_DEBUG=1 shows the frames of dotcu
        if result is not None:
            return result
        for overload in self.overloads.values():
            if overload.signature.outs and all(name in kwargs for name in overload.signature.outs):
                return overload._written(kwargs)
        return None

    def _choose_direct(self) -> None:
        """Let native code choose among overloads, and call bodies that the dispatcher would only pass on to.

        Where a rule for autocast is registered, the dispatcher sees each call.
        """
        calls = [overload._native for overload in self.overloads.values()]
        if any(each is None for each in calls):
            return
        for each, after, overload in zip(calls, [*calls[1:], None], self.overloads.values(), strict=True):
            each.chain(after, overload.torch_op, not overload.autocasts)
        self._direct = self._native.call


_operators: dict[str, WeakSet[LaunchingOperator]] = {}


def _redirect_earlier(operator: LaunchingOperator) -> None:
    """Let objects of earlier definitions of the same name call the one in force."""
    definitions = _operators.setdefault(operator.signature.packet_name, WeakSet())
    definitions.add(operator)
    for earlier in definitions:
        earlier._call, earlier._direct = operator._call, operator._direct


def defined(where: Callable[[register.Definition], bool]) -> list[LaunchingOperator]:
    """Return the operators in force that are defined in some places, whatever refers to them."""
    origins = register.origins()
    return [
        operator
        for name, definitions in _operators.items()
        for operator in definitions
        if name in origins and where(origins[name]) and operator.is_in_force
    ]


class ExistingOperator(Overload):
    """One overload of an operator that a library computes.

    Calling it calls the library: its CPU kernel for CPU tensors, its CUDA kernel for CUDA tensors.
    """

    def __init__(
        self,
        registration: register.Registration,
        *,
        dtypes: Sequence[torch.dtype],
        tags: Sequence[torch.Tag] = (),
        tolerance: Tolerance = None,
    ) -> None:
        super().__init__(registration, dtypes=dtypes, tolerance=tolerance)
        self._tags = frozenset(tags)
        self.__module__ = registration.origin.module

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    def fake(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Give the shapes, for torch.compile: of the library's results, without values.

        Raises:
            UsageError: The library has a fake or Meta kernel of its own, or a kernel that serves as one.
        """
        if self._fake is None:
            self._refuse_second("fake", "fake kernel", has=self._registration.has_own_fake)
            self._registration.implement_fake(self._faked)
        return super().fake(function)

    def backward(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Give the gradient, with torch.library.register_autograd's meaning. A launch in it is refused.

        Raises:
            SchemaError: The operator writes its arguments, or takes a tensor by keyword only.
            UsageError: The library has a kernel for autograd.
        """
        if self._backward is not None:
            return super().backward(function)
        self._refuse_second("backward", "gradient", has=self._registration.has(register.AUTOGRAD))
        super().backward(function)
        recorder = autograd.Recorder(self.signature, lambda: (self._backward, self._setup_context))
        kernel = autograd.kernel(self._registration.operator, recorder)
        try:
            self._registration.implement("Autograd", kernel)
        except BaseException:
            self._backward = None  # so that a second try registers it
            raise
        return function

    def vmap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Give a batching rule for torch.func.vmap, with torch.library.register_vmap's meaning.

        Raises:
            SchemaError: The operator takes a tensor by keyword only.
            UsageError: The library has a batching rule.
        """
        if self._vmap is None:
            self._refuse_second("vmap", "batching rule", has=self._registration.has(register.BATCHING))
        return super().vmap(function)

    def autocast(self, dtype: torch.dtype) -> Callable[[Registered], Registered]:
        """Let `torch.autocast` cast floating inputs, float64 apart, to `dtype`.

        Raises:
            UsageError: The library has a rule for autocast; or autocast knows no such dtype.
        """
        self._refuse_second("autocast", "rule for autocast", has=self.autocasts)
        return super().autocast(dtype)

    def _refuse_second(self, method: str, what: str, *, has: bool) -> None:
        if has:
            raise UsageError(
                f"{self.qualified_name} has a {what} already: its library, or another module, registered it, "
                f"and torch takes one.\nRemove what @{self.__name__}.{method} decorates here: `dotcu check` "
                "uses the registered one."
            )

    def _faked(self, *args: Any, **kwargs: Any) -> Any:
        assert self._fake is not None
        return self._fake(*args, **kwargs)

    @property
    def library(self) -> Path | None:
        """The file of the library, where `dotcu.load_cpp` loaded it."""
        from dotcu.cpp.load import library_of  # of no use where nothing is made of C++

        return library_of(self.qualified_name)

    @property
    def tags(self) -> frozenset[torch.Tag]:
        """The library's tags, and those given to `dotcu.op.existing`."""
        return super().tags | self._tags

    @property
    def has_backward(self) -> bool:
        """True if it has a gradient, of `backward` or of the library."""
        differentiates = self._registration.has(register.AUTOGRAD)
        return super().has_backward or (differentiates and not self.signature.mutates)

    @property
    def has_vmap(self) -> bool:
        """True if it has a batching rule, of `vmap` or of the library."""
        return super().has_vmap or self._registration.has(register.BATCHING)

    def __repr__(self) -> str:
        return f"<dotcu.op.existing {self.signature}; a library computes it>"


Operator = LaunchingOperator | ExistingOperator
"""A torch operator that dotcu checks, measures and inspects, whatever computes it."""


class OpDecorator:
    """Make a torch operator of a function that allocates its result and launches kernels: `@dotcu.op(...)`.

    `dotcu.op.existing(name)` describes an operator that a library has registered.
    """

    def __call__(
        self,
        name: str,
        *,
        dtypes: Sequence[torch.dtype] = (torch.float32,),
        mutates_args: Sequence[str] = (),
        tags: Sequence[torch.Tag] = (),
        tolerance: Tolerance = None,
        sharding: Sharding | None = None,
    ) -> Callable[[OperatorBody], LaunchingOperator]:
        """Make a torch operator of a function that allocates its result and launches kernels.

        The schema comes from the annotations. The body runs on CUDA tensors, in the simulator for CPU
        tensors, and without its launches where torch asks for shapes. It is a function of shapes, strides,
        dtypes and devices: it keeps no tensor and reads no pointer and no value. Defining the same name
        again from the same file and function replaces it.

        Args:
            name: `"namespace::name"`, as `torch.ops` will know it.
            dtypes: The dtypes that `check` and `bench` try.
            mutates_args: Arguments that the body writes, as in torch.library; it then returns nothing.
            tags: torch's tags for the operator.
            tolerance: The relative error that `check` allows instead of the bound that it computes, for all
                dtypes or by dtype. Reports show it.
            sharding: How tensors may be split over the ranks of a mesh: `"elementwise"`, or rules as
                its `sharding` takes them.

        Raises:
            SchemaError: torch cannot turn the annotations into a schema.
            DuplicateOperator: Another file, module or function has defined the name.
            UsageError: The name, `dtypes`, `tolerance` or `sharding` has the wrong form.
        """
        schema.split_name(name)  # also where dotcu.op decorates without being called
        _require_right(f"dotcu.op({name!r})", dtypes, tolerance, tags)

        return partial(
            LaunchingOperator,
            name=name,
            dtypes=dtypes,
            mutates_args=mutates_args,
            tags=tags,
            tolerance=tolerance,
            sharding=sharding,
        )

    def existing(
        self,
        name: str,
        *,
        dtypes: Sequence[torch.dtype] = (torch.float32,),
        tags: Sequence[torch.Tag] = (),
        tolerance: Tolerance = None,
    ) -> ExistingOperator:
        """Describe an operator that a library has registered, for `check` and `bench`.

        The library still computes it, on the CPU and on a GPU, and its schema stays. `reference`, `samples`
        and `work` are known to dotcu alone. A `fake`, a `backward`, a `vmap` and an `autocast` are registered
        with torch, and refused where the library has its own.

        Args:
            name: `"namespace::name"`, or `"namespace::name.overload"` for one overload.
            dtypes: The dtypes that `check` and `bench` try.
            tags: Tags besides those of the library; torch does not learn of them.
            tolerance: The relative error that `check` allows instead of the bound that it computes, for all
                dtypes or by dtype. Reports show it.

        Raises:
            UsageError: No library has registered the name or the overload, or dotcu.op has; or the name,
                `dtypes` or `tolerance` has the wrong form.
            SchemaError: A result cannot be compared: it is a number, for example, or a view of an argument.
        """
        names = schema.split_qualified_name(name)
        _require_right(f"dotcu.op.existing({name!r})", dtypes, tolerance, tags)
        signature = schema.read(register.find(*names)._schema)
        registration = register.adopt(signature, register.Definition.of_caller())
        return ExistingOperator(registration, dtypes=dtypes, tags=tags, tolerance=tolerance)


op: OpDecorator = OpDecorator()


def _require_right(
    call: str, dtypes: Sequence[torch.dtype], tolerance: Tolerance, tags: Sequence[torch.Tag]
) -> None:
    if isinstance(tags, (str, torch.Tag)) or not all(isinstance(tag, torch.Tag) for tag in tags):
        raise UsageError(
            f"{call}: tags takes several of torch's tags (got {tags!r}).\n"
            "Type: tags=(torch.Tag.pt2_compliant_tag,)"
        )
    if isinstance(dtypes, torch.dtype) or not all(isinstance(dtype, torch.dtype) for dtype in dtypes):
        raise UsageError(
            f"{call}: dtypes takes several torch dtypes (got {dtypes!r}).\nType: dtypes=(torch.float32,)"
        )
    for value in tolerance.values() if isinstance(tolerance, Mapping) else (tolerance,):
        if value is not None and not 0 <= value <= 1:  # NaN is neither
            raise UsageError(
                f"{call}: tolerance takes a relative error from 0 to 1 (got {value!r}).\n"
                "Type: tolerance=1e-3, or {torch.float16: 1e-3} for one dtype."
            )
