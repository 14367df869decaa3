"""The command line: one short file per command; nothing heavy is imported before a command needs it."""

import os
import warnings


def main() -> None:
    # Errors of the hub and of transformers come back as ours, in one line; their log lines would only surround it.
    os.environ.setdefault("HF_HUB_VERBOSITY", "error")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    warnings.filterwarnings("ignore", message="Recommended: pip install sacremoses")  # Marian works without it
    from lorgnette.cli.app import app

    app(prog_name="lorgnette")
