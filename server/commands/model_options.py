"""Which model `mks run` and `mks serve` are told to open, and how."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ...dsl.commands.sizes import add_sizes


def add_model(parser: argparse.ArgumentParser) -> None:
    """Add the arguments to a parser."""
    add = parser.add_argument
    add(
        "model",
        metavar="MODEL",
        nargs="?",
        help="a shipped definition's name, or a .mks file; not needed with --packed",
    )
    add(
        "--checkpoint",
        metavar="DIR",
        type=Path,
        help="a Hugging Face folder or a GGUF file (default: the one that comes with the model)",
    )
    add(
        "--packed",
        metavar="DIR",
        type=Path,
        help="a folder that mks pack wrote: definition, sizes, schedule and "
        "weights as they were packed; implies --backend pallas",
    )
    add(
        "--compiled",
        metavar="DIR",
        type=Path,
        help="a folder that mks compile wrote for these TPUs: the decode step "
        "is loaded, not compiled; implies --backend pallas; only from those you trust, for it is code",
    )
    add("--sizes", choices=["config"], help="take the sizes from the checkpoint's config.json")
    add(
        "--dtype",
        choices=["f32", "bf16", "auto"],
        help="working type, which the model's bf16 stands for: f32 is exact and fastest on "
        "most CPUs, bf16 takes half the memory, auto follows the checkpoint (default: what was packed or compiled, "
        "else f32)",
    )
    add_sizes(parser)
    add(
        "--backend",
        choices=["reference", "pallas"],
        help="plain JAX, or kernels for TPUs, which are interpreted on a host without one (default: reference)",
    )
    add("--schedule", metavar="NAME", help="how kernels move weights (default: its only one)")


def check_model(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Ends with the usage where arguments do not go together."""
    if args.model is None and args.packed is None:
        parser.error("name a MODEL, or a folder with --packed")
    for name in ("packed", "compiled"):
        if getattr(args, name) is not None and args.backend == "reference":
            parser.error(f"--{name} is for kernels; it does not go with --backend reference")


def opening(args: argparse.Namespace) -> dict[str, Any]:
    """What `open_model` is asked for."""
    kernels = args.packed is not None or args.compiled is not None
    return {
        "model": args.model,
        "checkpoint": args.checkpoint,
        "sizes_from_config": args.sizes == "config",
        "sizes": args.size,
        "backend": args.backend or ("pallas" if kernels else "reference"),
        "schedule": args.schedule,
        "dtype": args.dtype,
        "packed": args.packed,
        "compiled": args.compiled,
    }
