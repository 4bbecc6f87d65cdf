"""`gqctl` and `python -m gq_ctl`."""

import sys


def main() -> None:
    from gq_ctl import standard
    standard.hold()
    from gq_ctl.app import run
    code = run()
    try:
        sys.stdout.flush()
    except OSError as e:
        from gq_ctl.app import stdout_failed
        code = stdout_failed(e, code)
    sys.exit(code)


if __name__ == "__main__":
    main()
