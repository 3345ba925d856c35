"""Clusters: registers, addresses, accesses and barriers between blocks, and what arrives asynchronously."""

from __future__ import annotations

import numpy as np

from golden_case import Case, In, MapOf, Out
from golden_recipes import bits, uniform, whole

I32, U32 = np.int32, np.uint32

CLUSTERS = (
    Case(
        name="cluster_registers",
        args={"out": Out((16, 20), U32)},
        grid=(4, 2, 2),
        block=32,
        cluster=(2, 2, 1),
    ),
    Case(name="cluster_addresses", args={"out": Out((8, 32, 12), U32)}, grid=8, block=32, cluster=4),
    Case(
        name="cluster_loads",
        args={
            "in": In(bits(8, 128)),
            "out": Out((8, 130), U32),
            "cells": Out((8, 14), U32),
            "floats": Out((8,)),
        },
        grid=8,
        block=128,
        cluster=2,
    ),
    Case(name="cluster_barrier", args={"out": Out((8, 64), I32)}, grid=8, block=64, cluster=4),
    Case(name="cluster_mbarrier", args={"out": Out((8, 32), I32), "rounds": 5}, grid=8, block=32, cluster=4),
    Case(
        name="cluster_async",
        args={"out": Out((6, 300), U32), "floats": Out((6, 32, 4))},
        grid=6,
        block=32,
        cluster=3,
    ),
    Case(
        name="cluster_bulk",
        args={"in": In(bits(8, 64)), "out": Out((8, 192), U32)},
        grid=8,
        block=32,
        cluster=4,
    ),
    *[
        Case(
            name=f"cluster_box_{swizzle}",
            kernel="cluster_box",
            file="cluster_box",
            args={
                "x": In(uniform(64, 32)),
                "map": MapOf("x", box=(8, 32), swizzle=swizzle),
                "out": Out((8, 32, 32)),
            },
            grid=8,
            block=32,
            cluster=4,
        )
        for swizzle in (0, 128)
    ],
    Case(
        name="cluster_group",
        args={"in": In(whole(8, 64, high=1000)), "out": Out((8, 64, 4), I32)},
        grid=(4, 2),
        block=64,
    ),
)
