"""Functions that Numba compiles, and the cache of their machine code.

::

    kernel     a function over arrays, called through Numba, without the GIL
    builtin    a function of Python objects, called by the interpreter as its own builtins are
    memory     the parts of builtins: words at addresses, and the interpreter's functions by name
    compiler   compiles them in a process beside a broker, which uses them when they are ready

The functions themselves are in the packages that need them, the *rooms*; `kernel.ROOMS` lists their modules. Numba is
imported together with the first of these modules.
"""

from milepost.kernels.kernel import at_hand, compiled, folder, home, kept, kept_in, loaded, warm

__all__ = ["at_hand", "compiled", "folder", "home", "kept", "kept_in", "loaded", "warm"]
