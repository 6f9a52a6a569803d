"""Makes a program that fails as small as dropping its parts makes it."""

import time


def shrink(program, why, smaller, failure, limit=12):
    """As small as it gets in `limit` seconds, and what is wrong with it. `smaller(program)`: programs with one part less;
    `failure(program)`: what is wrong with one, or None. One that cannot be run is no smaller program."""
    end, again = time.time() + limit, True
    while again and time.time() < end:
        again = False
        for less in smaller(program):
            try:
                now = failure(less)
            except Exception:
                continue
            if now:
                program, why, again = less, now, True
                break
            if time.time() > end:
                break
    return program, why
