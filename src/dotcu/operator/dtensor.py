"""DTensor's view of an operator: strategies from rules, for any mesh.

torch's public `register_sharding` looks at integer arguments alone, takes no `out=` and passes keyword
tensors on wherever they are. So strategies are made of the parts that torch's own operators use
(`torch_compat.dtensor_parts`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

from torch.distributed.tensor import Partial, Replicate, Shard

from dotcu import torch_compat
from dotcu.errors import ArgumentError
from dotcu.operator.schema import Signature
from dotcu.operator.sharding import CallRules, MeshPlacement, ShardingRule, results_of

parts = torch_compat.dtensor_parts()


def _of_torch(place: MeshPlacement) -> Any:
    if place is None:
        return Replicate()
    return Shard(place) if isinstance(place, int) else Partial(place)


def schema_info(operator: Any) -> Any:
    """Return what DTensor's cache of strategies must know: every argument that is no tensor may decide."""
    arguments = operator._schema.arguments
    keywords = [argument.name for argument in arguments if argument.kwarg_only]
    nested = any("[]" in str(argument.type) or "List" in str(argument.type) for argument in arguments)
    return parts.RuntimeSchemaInfo(0, keywords or None, needs_pytree=nested)


def strategy(signature: Signature, rules: CallRules) -> Callable[[Any], Any]:
    """Make the function that gives DTensor an operator's strategies.

    Each is a rule for every dimension of the mesh. DTensor redistributes positional tensors to the nearest
    one; what is written or given by keyword stays where it is, and so rules out the others.
    """
    pinned = {*signature.mutates, *signature.keyword_only}

    def strategies(schema: Any) -> Any:
        values = {**dict(zip(signature.arguments, schema.args_schema, strict=False)), **schema.kwargs_schema}
        tensors = [(name, each) for name, value in values.items() for each in _strategies(value)]
        mesh = schema.get_mesh_from_args()
        whole = ShardingRule(arguments={}, results=(None,) * results_of(signature))
        of_call = [
            whole,
            *rules(_specs(schema.args_schema), {n: _specs(v) for n, v in schema.kwargs_schema.items()}),
        ]
        found = []
        for along in product(of_call, repeat=mesh.ndim):
            wanted = [[_place(rule, name, signature) for rule in along] for name, _ in tensors]
            results = [[rule.results[i] for rule in along] for i in range(signature.returns)]
            specs = [parts.DTensorSpec(mesh, tuple(map(_of_torch, places))) for places in wanted]
            if all(map(_reduces_once, (*wanted, *results))) and all(
                _may_be(own, spec, stays=name in pinned, even=any(rule.even for rule in along))
                for (name, own), spec in zip(tensors, specs, strict=True)
            ):
                outputs = tuple(parts.DTensorSpec(mesh, tuple(map(_of_torch, places))) for places in results)
                costs = [
                    parts.generate_redistribute_costs(own, spec)
                    for (_, own), spec in zip(tensors, specs, strict=True)
                ]
                found.append(
                    parts.OpSpec(
                        output_specs=outputs[0] if len(outputs) == 1 else outputs or None,
                        input_specs=specs,
                        redistribute_cost=costs,
                    )
                )
        if not found:
            raise ArgumentError(_stuck(signature, pinned, tensors, of_call))
        return parts.OpStrategy(found)

    return strategies


def _specs(value: Any) -> Any:
    """Return an argument with the layout of each tensor in place of its strategy."""
    if isinstance(value, parts.OpStrategy):
        return value.strategies[0].output_spec
    if isinstance(value, parts.TupleStrategy):
        return tuple(map(_specs, value.children))
    return tuple(map(_specs, value)) if isinstance(value, (list, tuple)) else value


def _strategies(value: Any) -> list[Any]:
    if isinstance(value, parts.TupleStrategy):
        return [each for child in value.children for each in _strategies(child)]
    if isinstance(value, (list, tuple)):
        return [each for child in value for each in _strategies(child)]
    return [value] if isinstance(value, parts.OpStrategy) else []


def _place(rule: ShardingRule, name: str, signature: Signature) -> MeshPlacement:
    if name in signature.outs:
        return rule.results[signature.returns + signature.outs.index(name)]
    return rule.place(name)


def _reduces_once(places: Sequence[MeshPlacement]) -> bool:
    """Return False for a tensor that would be reduced in two ways: torch cannot redistribute it."""
    return len({place for place in places if isinstance(place, str)}) <= 1


def _may_be(own: Any, spec: Any, *, stays: bool, even: bool) -> bool:
    """Return whether a tensor is placed so, or can be: then no rank of a dimension is to be left empty.

    It cannot be redistributed if it `stays`; its parts must be of equal sizes if they are `even`.
    """
    now = own.strategies[0].output_spec
    counts: dict[int, int] = {}
    for size, each in zip(spec.mesh.shape, spec.placements, strict=True):
        if isinstance(each, Shard):
            counts[each.dim] = counts.get(each.dim, 1) * size
    if even and any(now.shape[dim] % count for dim, count in counts.items()):
        return False
    if stays or now.placements == spec.placements:
        return bool(now.placements == spec.placements)
    return all(now.shape[dim] >= count for dim, count in counts.items())


def _stuck(
    signature: Signature, pinned: set[str], tensors: Sequence[tuple[str, Any]], rules: Sequence[ShardingRule]
) -> str:
    placed = {name: own.strategies[0].output_spec.placements for name, own in tensors if name in pinned}
    now = " and ".join(f"{name} as {list(places)}" for name, places in placed.items())
    known = "; ".join(map(str, rules))
    return (
        f"{signature.qualified_name} got {now}, which fits none of its shardings: {known}.\n"
        "A tensor that is written, or given by keyword, is not redistributed.\n"
        f"Redistribute it first: {next(iter(placed), 'x')}.redistribute(placements=[Replicate()])"
    )


def writing(signature: Signature) -> Callable[..., Any]:
    """Make the handler of an operator that writes its arguments: DTensor would wrap results, and has none."""

    def handle(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        dispatcher = torch_compat.dtensor_dispatcher()
        info: Any = dispatcher.unwrap_to_op_info(operator, args, kwargs)
        dispatcher.sharding_propagator.propagate(info)
        sharding = info.output_sharding
        assert sharding is not None
        if info.compute_mesh.get_coordinate() is not None:
            if sharding.needs_redistribute:
                dispatcher.redistribute_local_args(info, sharding.redistribute_schema, False)
            tree: Any = info.args_tree_spec
            local = tree.unflatten(info.local_args) if tree else info.local_args
            operator(*local, **info.local_kwargs)
        written = signature.written(args, kwargs)
        returned = len(operator._schema.returns)
        return None if not returned else written[0] if returned == 1 else written

    return handle
