"""Functions that Numba compiles: what they are, and where their machine code is kept.

::

    kernel     a function over arrays, called through Numba, without the GIL
    builtin    a function of Python objects, called by the interpreter as its own builtins are
    memory     what builtins are made of: words at addresses, and the interpreter's functions by name
    compiler   has them compiled by a process beside a broker, which uses them when they are there

The functions themselves live in the rooms that need them; `kernel.ROOMS` names their modules. Numba is imported when
the first of these is, and no sooner.
"""

from milepost.kernels.kernel import at_hand, compiled, folder, home, kept, kept_in, loaded, warm

__all__ = ["at_hand", "compiled", "folder", "home", "kept", "kept_in", "loaded", "warm"]
