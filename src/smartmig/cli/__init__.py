"""The command line: one file per verb, wiring and printing only.

stdout is the result, stderr the progress and the log. Exit 0: done; 1: refused or failed; 2: bad usage or bad input;
130: stopped with Ctrl-C.
"""

from __future__ import annotations

import os
import sys

from smartmig.errors import SmartmigError

STOPPED = 130
"""Exit code of a command stopped with Ctrl-C: 128 + SIGINT, as shells have it."""


def main() -> None:
    """Entry point: a user's mistake is one sentence, never a traceback."""
    try:
        # Imported here, because that takes a while and Ctrl-C may come meanwhile.
        from smartmig.cli.app import make_app

        make_app(sys.argv[1:2])()
    except SmartmigError as error:
        print(f"smartmig: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("smartmig: stopped", file=sys.stderr)
        sys.exit(STOPPED)
    except SystemExit as end:
        # typer turns Ctrl-C into this code without a word.
        if end.code == STOPPED:
            print("smartmig: stopped", file=sys.stderr)
        raise
    except BrokenPipeError:
        # The reader went away (`| head`): silence the interpreter's own complaint at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
