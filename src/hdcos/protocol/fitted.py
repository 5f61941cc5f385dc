"""Fits as integers, made once by `fit` and kept: hosts whose linear algebra differs in the last bit must not fit anew.

A coefficient that differs by one unit between the parties would multiply a uniform share by it: garbage, not an error.
"""

from __future__ import annotations

from hdcos.protocol.fourier import Series

# fmt: off
FITTED: dict[tuple[str, int, int], Series] = {
    ("sigmoid", 8, 7): Series(
        5,
        tuple(range(1, 14, 2)),
        524288,
        (0,) * 7,
        (
            627102, 132633, 37813, 10947, 3217, 917, 274,
        ),
    ),
    ("sigmoid", 32, 40): Series(
        7,
        tuple(range(1, 80, 2)),
        524288,
        (0,) * 40,
        (
            664906, 214771, 121143, 79084, 54803, 39063, 28244, 20573, 15045, 11025, 8088, 5937, 4360, 3202, 2352,
            1728, 1269, 932, 685, 503, 370, 271, 199, 147, 108, 79, 58, 43, 31, 23, 17, 12, 9, 7, 5, 4, 3, 2, 1, 1,
        ),
    ),
    ("tanh", 4, 7): Series(
        4,
        tuple(range(1, 14, 2)),
        0,
        (0,) * 7,
        (
            1254204, 265266, 75626, 21894, 6434, 1835, 549,
        ),
    ),
    ("expm1", 4, 12): Series(
        4,
        tuple(range(1, 13)),
        16529770,
        (
            -10187116, -17557523, 13816473, 2258629, -10564595, 8227417, -2045749, -1963376, 2569706, -1515292,
            516338, -85348,
        ),
        (
            26985067, -10364371, -12971064, 15911030, -4115973, -7761914, 12008549, -9670228, 5269823, -1993554,
            486561, -59096,
        ),
    ),
    ("expm1", 6, 16): Series(
        4,
        tuple(range(1, 17)),
        85002572,
        (
            -123955036, 38812003, 21110993, -49431748, 56687995, -52375410, 42824695, -31941897, 21949433, -13901177,
            8065563, -4234138, 1968291, -780019, 244242, -49327,
        ),
        (
            109878166, -145207521, 129492300, -98840103, 69229085, -45398679, 27934371, -16026722, 8464814, -4029033,
            1664255, -550501, 111939, 13305, -23803, 9816,
        ),
        interval_bits=1,
    ),
}
# fmt: on
"""By function, largest |x| and number of terms."""
