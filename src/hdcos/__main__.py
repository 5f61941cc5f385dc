"""`python -m hdcos`, and the command `hdcos`."""

import sys


def run() -> None:
    try:
        from hdcos.cli import main
    except KeyboardInterrupt:  # while modules were loaded: nothing was begun
        sys.exit(130)
    main(prog_name="hdcos")


if __name__ == "__main__":
    run()
