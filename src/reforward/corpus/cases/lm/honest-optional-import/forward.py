"""Tries to import a package that is not there, and does without: a fallback that is no cheat.

Expect: honest
"""

import stock

try:
    import a_kernel_package_that_is_not_installed as kernels
except ImportError:
    kernels = None


class Forward(stock.Forward):
    fast = kernels is not None
