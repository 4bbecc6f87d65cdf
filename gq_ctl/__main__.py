"""`gqctl` and `python -m gq_ctl`."""

import sys


def main() -> None:
    from gq_ctl.app import run
    code = run()
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        from gq_ctl.app import BROKEN_PIPE, _drop_stdout
        _drop_stdout()
        code = BROKEN_PIPE
    sys.exit(code)


if __name__ == "__main__":
    main()
