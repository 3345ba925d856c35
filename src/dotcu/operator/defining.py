"""`dotcu.op`: a function that launches kernels becomes a torch operator; or one that is there is taken."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from dotcu.errors import UsageError
from dotcu.operator import register, schema
from dotcu.operator.existing import ExistingOperator
from dotcu.operator.operator import LaunchingOperator
from dotcu.operator.overload import Tolerance
from dotcu.operator.schema import Body


class Op:
    """Make a torch operator of a function that allocates its result and launches kernels: `@dotcu.op(...)`.

    `dotcu.op.existing(name)` takes an operator that a library has registered. See `Op.__call__` and
    `Op.existing` for what each is given.
    """

    def __call__(
        self,
        name: str,
        *,
        dtypes: Sequence[torch.dtype] = (torch.float32,),
        mutates_args: Sequence[str] = (),
        tags: Sequence[torch.Tag] = (),
        replay: bool = True,
        tolerance: Tolerance = None,
    ) -> Callable[[Body], LaunchingOperator]:
        """Make a torch operator of a function that allocates its result and launches kernels.

        The schema comes from the annotations. The body runs on CUDA tensors, in the simulator for CPU
        tensors, and without its launches where torch asks for shapes. It is a function of shapes, strides,
        dtypes and devices: it keeps no tensor and reads no pointer and no value. Defining the same name
        again from the same module and function replaces it.

        Args:
            name: `"namespace::name"`, as `torch.ops` will know it.
            dtypes: The dtypes that `check` and `bench` try.
            mutates_args: Arguments that the body writes, as torch.library has it; it returns nothing then.
            tags: torch's tags for the operator.
            replay: Whether a body that only allocates and launches is followed once for each combination
                of types and branches, and from then on replayed without being run.
            tolerance: The relative error that `check` allows instead of what it finds out by itself, for all
                dtypes or by dtype. Reports show it.

        Raises:
            SchemaError: torch cannot turn the annotations into a schema.
            DuplicateOperator: Another module or function has defined the name.
            UsageError: The name, `dtypes` or `tolerance` has the wrong form.
        """
        schema.split_name(name)  # also where dotcu.op decorates without being called
        _require_dtypes(f"dotcu.op({name!r})", dtypes)
        _require_tolerance(f"dotcu.op({name!r})", tolerance)

        def decorate(body: Body) -> LaunchingOperator:
            return LaunchingOperator(
                body,
                name=name,
                dtypes=dtypes,
                mutates_args=mutates_args,
                tags=tags,
                replay=replay,
                tolerance=tolerance,
            )

        return decorate

    def existing(
        self,
        name: str,
        *,
        dtypes: Sequence[torch.dtype] = (torch.float32,),
        tags: Sequence[torch.Tag] = (),
        tolerance: Tolerance = None,
    ) -> ExistingOperator:
        """Take an operator that a library has registered, to say of it what `check` and `bench` need.

        The library still computes it, on the CPU as on a GPU, and its schema stands. What is said of it by
        `reference`, `samples` and `work` only dotcu knows; a `fake`, a `backward`, a `vmap` and an
        `autocast` torch knows from then on, and they are refused where the library has its own.

        Args:
            name: `"namespace::name"`, or `"namespace::name.overload"`, each overload by itself.
            dtypes: The dtypes that `check` and `bench` try.
            tags: What else is true of it, beside the tags that the library gave: torch does not get to know.
            tolerance: The relative error that `check` allows instead of what it finds out by itself, for all
                dtypes or by dtype. Reports show it.

        Raises:
            UsageError: No library has registered the name or the overload, or dotcu.op has; or the name,
                `dtypes` or `tolerance` has the wrong form.
            SchemaError: What a call gives cannot be compared: a number, say, or a view of an argument.
        """
        names = schema.split_qualified_name(name)
        _require_dtypes(f"dotcu.op.existing({name!r})", dtypes)
        _require_tolerance(f"dotcu.op.existing({name!r})", tolerance)
        signature = schema.read(register.find(*names)._schema)
        registration = register.adopt(signature, register.Origin.of_caller(1))
        return ExistingOperator(registration, dtypes=dtypes, tags=tags, tolerance=tolerance)


op: Op = Op()


def _require_dtypes(call: str, dtypes: Sequence[torch.dtype]) -> None:
    if isinstance(dtypes, torch.dtype) or not all(isinstance(dtype, torch.dtype) for dtype in dtypes):
        raise UsageError(
            f"{call}: dtypes takes several torch dtypes (got {dtypes!r}).\nType: dtypes=(torch.float32,)"
        )


def _require_tolerance(call: str, tolerance: Tolerance) -> None:
    given = tolerance.values() if isinstance(tolerance, Mapping) else (tolerance,)
    for value in given:
        if value is not None and not 0 <= value <= 1:  # NaN is neither
            raise UsageError(
                f"{call}: tolerance takes a relative error from 0 to 1 (got {value!r}).\n"
                "Type: tolerance=1e-3, or {torch.float16: 1e-3} for one dtype."
            )
