"""Write the streaming step of a bundle as a file that runs without this code.

The step is pure: a block of tokens, their times and the cached keys and values go in, what the network knows and the
new keys and values come out. It is checked against the network over many steps; a file that differs is not written.
`onnx` runs on any CPU with an ONNX runtime; `aotinductor` is native code for this kind of machine.
"""

from __future__ import annotations

import argparse

from robopos.cli.options import add_bundle, add_device, add_json, add_out

HELP = "a bundle's step to ONNX or native code"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_bundle(parser)
    parser.add_argument("--to", choices=("onnx", "aotinductor"), required=True, help="kind of file (required)")
    add_out(parser, "file to write: .onnx for onnx, .pt2 for aotinductor")
    parser.add_argument("--block", type=int, default=8, metavar="N", help="tokens of a block (default: %(default)s)")
    add_device(parser, default="cpu")
    add_json(parser, "the check against the network")


def run(args: argparse.Namespace) -> None:
    """Write the file and print the check."""
    import time

    from robopos.cli.show import Progress, write_json
    from robopos.model import Bundle, pick_device
    from robopos.serving import export_step

    bundle = Bundle.load(args.bundle, pick_device(args.device))
    started = time.monotonic()
    with Progress("export", None):
        parity = export_step(bundle, args.to, args.out, block=args.block)
    print(
        f"parity with the network over {parity.steps} steps ({parity.tokens} tokens): "
        f"largest difference {parity.largest:.2g}, rms {parity.rms:.2g}"
    )
    print(f"exported in {time.monotonic() - started:.1f} s: {args.out}")
    write_json(args.json, parity._asdict() | {"out": args.out, "to": args.to, "block": args.block})
